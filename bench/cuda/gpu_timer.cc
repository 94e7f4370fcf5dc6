#include "bench/cuda/gpu_timer.h"

#include <algorithm>

#include "bench/cuda/traffic_kernel.h"
#include "kernels/cuda/cuda_check.h"

namespace stepscope::bench {
namespace {

/// An L2 cache need not throw out the oldest lines first, so it is read over several times.
constexpr std::int64_t kTimesL2 = 4;
/// Some 100 us of the fastest memory: longer than PyTorch's host code takes for a step.
constexpr std::int64_t kLeastSweep = std::int64_t{512} << 20;

}  // namespace

GpuTimer::GpuTimer(std::int64_t l2_bytes)
    : swept_(std::max(kLeastSweep, kTimesL2 * l2_bytes)),
      sink_(sizeof(unsigned)),
      thread_blocks_(traffic_thread_blocks()) {
  STEPSCOPE_CUDA_CHECK(cudaEventCreate(&start_), -1);
  STEPSCOPE_CUDA_CHECK(cudaEventCreate(&stop_), -1);
}

// Failures here have nobody to go to, as in ~DeviceBuffer.
GpuTimer::~GpuTimer() {
  static_cast<void>(cudaEventDestroy(start_));
  static_cast<void>(cudaEventDestroy(stop_));
}

void GpuTimer::evict_l2() {
  launch_sweep(swept_.data(), swept_.words(), sink_.data(), thread_blocks_);
}

double GpuTimer::time_ns(const std::function<void()>& enqueue) {
  STEPSCOPE_CUDA_CHECK(cudaEventRecord(start_, nullptr), -1);
  enqueue();
  STEPSCOPE_CUDA_CHECK(cudaEventRecord(stop_, nullptr), -1);
  STEPSCOPE_CUDA_CHECK(cudaEventSynchronize(stop_), -1);
  float ms = 0;
  STEPSCOPE_CUDA_CHECK(cudaEventElapsedTime(&ms, start_, stop_), -1);
  return static_cast<double>(ms) * 1e6;
}

}  // namespace stepscope::bench
