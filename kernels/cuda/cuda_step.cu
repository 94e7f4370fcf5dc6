#include <cstddef>
#include <string>

#include "core/error.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_step.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/step_kernel.cuh"
#include "kernels/cuda/step_table.h"
#include "kernels/validate.h"

namespace stepscope::kernels::cuda {
namespace {

/// Memory of the current device, freed with the object.
template <class T>
class DeviceArray {
 public:
  DeviceArray(std::size_t count, std::int64_t rank) {
    STEPSCOPE_CUDA_CHECK(cudaMalloc(&pointer_, count * sizeof(T)), rank);
  }
  // A failure here has nobody to go to: the context is gone already.
  ~DeviceArray() { static_cast<void>(cudaFree(pointer_)); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return static_cast<T*>(pointer_); }

 private:
  void* pointer_ = nullptr;
};

std::int64_t resident_thread_blocks(const void* kernel, std::int64_t rank) {
  int device = 0;
  int multiprocessors = 0;
  int each = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device), rank);
  STEPSCOPE_CUDA_CHECK(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), rank);
  STEPSCOPE_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kThreads, 0),
                       rank);
  if (each < 1) {
    throw Error("the optimizer kernel does not fit on a multiprocessor of the device",
                "report the device and the build", {.rank = rank});
  }
  return std::int64_t{each} * multiprocessors;
}

const void* kernel_of(Algorithm algorithm) {
  return algorithm == Algorithm::AdamW ? reinterpret_cast<const void*>(&stepscope_adamw_step)
                                       : reinterpret_cast<const void*>(&stepscope_lion_step);
}

}  // namespace

class CudaStep::Impl {
 public:
  Impl(Algorithm algorithm, const StepTable& table, std::int64_t rank)
      : rank_(rank),
        kernel_(kernel_of(algorithm)),
        tensors_(table.tensors.size(), rank),
        steps_(table.steps.size(), rank),
        hyperparameters_(1, rank),
        finished_(1, rank) {
    const std::int64_t grid = grid_size(table, resident_thread_blocks(kernel_, rank));
    grid_ = static_cast<unsigned>(grid);
    arguments_ = deal_out(table, grid);
    arguments_.tensors = tensors_.get();
    arguments_.steps = steps_.get();
    arguments_.hyperparameters = hyperparameters_.get();
    arguments_.finished = finished_.get();
    STEPSCOPE_CUDA_CHECK(
        cudaMemcpy(tensors_.get(), table.tensors.data(), table.tensors.size() * sizeof(TensorEntry),
                   cudaMemcpyHostToDevice),
        rank);
    STEPSCOPE_CUDA_CHECK(
        cudaMemcpy(steps_.get(), table.steps.data(), table.steps.size() * sizeof(TensorStep),
                   cudaMemcpyHostToDevice),
        rank);
    STEPSCOPE_CUDA_CHECK(cudaMemset(finished_.get(), 0, sizeof(std::uint32_t)), rank);
  }

  void enqueue(cudaStream_t stream) {
    void* arguments[] = {&arguments_};
    STEPSCOPE_CUDA_CHECK(
        cudaLaunchKernel(kernel_, dim3(grid_), dim3(kThreads), arguments, 0, stream), rank_);
  }

  void set_hyperparameters(const Hyperparameters& hyperparameters, cudaStream_t stream) {
    TensorStep* steps = steps_.get();
    std::int32_t count = arguments_.tensor_count;
    bnb_cuda::RoundedHyperparameters* stored = hyperparameters_.get();
    bnb_cuda::RoundedHyperparameters rounded = bnb_cuda::round_hyperparameters(hyperparameters);
    void* arguments[] = {&steps, &count, &stored, &rounded};
    const unsigned grid = static_cast<unsigned>((count + kThreads - 1) / kThreads);
    STEPSCOPE_CUDA_CHECK(
        cudaLaunchKernel(reinterpret_cast<const void*>(&stepscope_set_hyperparameters), dim3(grid),
                         dim3(kThreads), arguments, 0, stream),
        rank_);
  }

 private:
  std::int64_t rank_;
  const void* kernel_;
  DeviceArray<TensorEntry> tensors_;
  DeviceArray<TensorStep> steps_;
  DeviceArray<bnb_cuda::RoundedHyperparameters> hyperparameters_;
  DeviceArray<std::uint32_t> finished_;
  StepArguments arguments_{};
  unsigned grid_ = 0;
};

CudaStep::CudaStep(Algorithm algorithm, const Hyperparameters& hyperparameters,
                   std::span<const ShardTensors> shards, std::int64_t rank) {
  static_cast<void>(device_count());
  StepTable table;
  try {
    validate(hyperparameters);
    table = build_step_table(algorithm, shards);
  } catch (const Error& error) {
    throw error.with_rank(rank);
  }
  if (table.tensors.empty()) return;
  impl_ = std::make_unique<Impl>(algorithm, table, rank);
  set_hyperparameters(hyperparameters, nullptr);
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(nullptr), rank);
}

CudaStep::~CudaStep() = default;
CudaStep::CudaStep(CudaStep&&) noexcept = default;
CudaStep& CudaStep::operator=(CudaStep&&) noexcept = default;

void CudaStep::enqueue(cudaStream_t stream) {
  if (impl_) impl_->enqueue(stream);
}

void CudaStep::set_hyperparameters(const Hyperparameters& hyperparameters, cudaStream_t stream) {
  validate(hyperparameters);
  if (impl_) impl_->set_hyperparameters(hyperparameters, stream);
}

int CudaStep::launches_per_step() const { return impl_ ? 1 : 0; }

}  // namespace stepscope::kernels::cuda
