#include "bench/cuda/traffic_kernel.h"
#include "kernels/cuda/cuda_check.h"

namespace {

using stepscope::bench::kTrafficThreads;
using stepscope::bench::TouchedTensor;
using stepscope::bench::TrafficArguments;

/// Loads that a thread has under way at once: enough of them, all threads together, to cover the
/// latency of the memory.
constexpr int kUnroll = 4;

__device__ std::int64_t first_word() {
  return static_cast<std::int64_t>(blockIdx.x) * kTrafficThreads + threadIdx.x;
}

__device__ std::int64_t stride_words() {
  return static_cast<std::int64_t>(gridDim.x) * kTrafficThreads;
}

__device__ uint4 exclusive_or(uint4 a, uint4 b) {
  return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}

__device__ uint4 masked(uint4 a, unsigned mask) {
  return make_uint4(a.x & mask, a.y & mask, a.z & mask, a.w & mask);
}

/// `zero` is 0, which the compiler must not know.
template <bool beside>
__device__ void touch(const TouchedTensor& tensor, unsigned zero) {
  auto* const data = static_cast<uint4*>(tensor.data);
  const auto* const read = static_cast<const uint4*>(tensor.read);
  const std::int64_t stride = stride_words();
  for (std::int64_t first = first_word(); first < tensor.words; first += kUnroll * stride) {
    uint4 values[kUnroll];
    uint4 others[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const std::int64_t i = first + k * stride;
      if (i >= tensor.words) continue;
      values[k] = data[i];
      others[k] = beside ? read[i] : make_uint4(zero, zero, zero, zero);
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const std::int64_t i = first + k * stride;
      if (i < tensor.words) data[i] = exclusive_or(values[k], masked(others[k], zero));
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kTrafficThreads)
    stepscope_traffic(const TrafficArguments arguments, unsigned zero) {
  // Unrolled: an index that is not constant would copy the arguments to local memory.
#pragma unroll
  for (int t = 0; t < 5; ++t) {
    const TouchedTensor& tensor = arguments.tensors[t];
    if (tensor.read != nullptr) {
      touch<true>(tensor, zero);
    } else {
      touch<false>(tensor, zero);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kTrafficThreads)
    stepscope_sweep(const uint4* data, std::int64_t words, unsigned* sink) {
  uint4 all = make_uint4(0, 0, 0, 0);
  for (std::int64_t i = first_word(); i < words; i += stride_words()) {
    all = exclusive_or(all, data[i]);
  }
  // Never true of zeros; without it the loads would be for nothing and left out.
  if ((all.x ^ all.y ^ all.z ^ all.w) != 0) *sink = 1;
}

namespace stepscope::bench {

unsigned traffic_thread_blocks() {
  int device = 0;
  int multiprocessors = 0;
  int each = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device), -1);
  STEPSCOPE_CUDA_CHECK(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), -1);
  STEPSCOPE_CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, stepscope_traffic, kTrafficThreads, 0),
      -1);
  return static_cast<unsigned>(multiprocessors) * static_cast<unsigned>(each < 1 ? 1 : each);
}

void launch_traffic(const TrafficArguments& arguments, unsigned thread_blocks) {
  stepscope_traffic<<<thread_blocks, kTrafficThreads>>>(arguments, 0);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError(), -1);
}

void launch_sweep(const void* data, std::int64_t words, void* sink, unsigned thread_blocks) {
  stepscope_sweep<<<thread_blocks, kTrafficThreads>>>(static_cast<const uint4*>(data), words,
                                                      static_cast<unsigned*>(sink));
  STEPSCOPE_CUDA_CHECK(cudaGetLastError(), -1);
}

}  // namespace stepscope::bench
