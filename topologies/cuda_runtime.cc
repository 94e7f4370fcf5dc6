#include "topologies/cuda_runtime.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "core/error.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/device_info.h"

namespace stepscope::topologies {
namespace {

/// Element of the allocator's statistics that sums over its pools.
constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

class CudaRuntime final : public DeviceRuntime {
 public:
  /// `ranks_of_device`: that share its memory.
  CudaRuntime(int ordinal, std::int64_t ranks_of_device)
      : info_(kernels::cuda::device_info(ordinal)), ranks_of_device_(ranks_of_device) {
    if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw Error(
          std::string("libtorch's CUDA library cannot be loaded: ") + dlerror(),
          "install the PyTorch of pyproject.toml (cmake/setup.sh), or run with --device cpu");
    }
    STEPSCOPE_CUDA_CHECK(cudaSetDevice(info_.ordinal), -1);
    at::globalContext().lazyInitDevice(at::kCUDA);
  }

  Device device() const override { return Device::cuda; }

  void synchronize() override { STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize(), -1); }

  void copy_to_host(void* destination, const void* source, std::int64_t bytes) override {
    STEPSCOPE_CUDA_CHECK(
        cudaMemcpy(destination, source, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost),
        -1);
  }

  void copy_to_device(void* destination, const void* source, std::int64_t bytes) override {
    STEPSCOPE_CUDA_CHECK(
        cudaMemcpy(destination, source, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice),
        -1);
  }

  PeakMemory peak_memory() const override {
    const auto stats = allocator().getDeviceStats(index());
    return {.allocated = stats.allocated_bytes[kAll].peak,
            .reserved = stats.reserved_bytes[kAll].peak};
  }

  void reset_peak_memory() override { allocator().resetPeakStats(index()); }

  std::optional<std::int64_t> available_bytes() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    STEPSCOPE_CUDA_CHECK(cudaMemGetInfo(&free, &total), -1);
    return static_cast<std::int64_t>(free) / ranks_of_device_;
  }

  nlohmann::json description() const override {
    return {{"name", info_.name},
            {"uuid", info_.uuid},
            {"compute_capability",
             std::to_string(info_.compute_major) + "." + std::to_string(info_.compute_minor)},
            {"multiprocessors", info_.multiprocessors},
            {"memory_bytes", info_.memory_bytes},
            {"l2_cache_bytes", info_.l2_cache_bytes},
            {"driver_cuda", kernels::cuda::version_text(info_.driver_version)},
            {"runtime_cuda", kernels::cuda::version_text(info_.runtime_version)}};
  }

 private:
  static c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(at::kCUDA); }
  c10::DeviceIndex index() const { return static_cast<c10::DeviceIndex>(info_.ordinal); }

  kernels::cuda::DeviceInfo info_;
  std::int64_t ranks_of_device_;
};

}  // namespace

std::unique_ptr<DeviceRuntime> open_cuda(std::int64_t local_rank, std::int64_t sharing_ranks) {
  if (sharing_ranks == 0) return std::make_unique<CudaRuntime>(static_cast<int>(local_rank), 1);
  const int devices = kernels::cuda::device_count();
  return std::make_unique<CudaRuntime>(static_cast<int>(local_rank % devices),
                                       (sharing_ranks + devices - 1) / devices);
}

}  // namespace stepscope::topologies
