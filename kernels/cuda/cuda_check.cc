#include "kernels/cuda/cuda_check.h"

#include <string>

#include "core/error.h"

namespace stepscope::kernels::cuda {
namespace {

std::string advice_for(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "use a smaller model, more ranks, or a device with more memory";
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      return "run with --device cpu, or on a machine with an NVIDIA driver for CUDA 13";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return "add the device's compute capability to CMAKE_CUDA_ARCHITECTURES and build again";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "an earlier launch may be the cause: run again with CUDA_LAUNCH_BLOCKING=1 or under "
             "compute-sanitizer";
    default:
      return {};
  }
}

}  // namespace

void check(cudaError_t status, const char* call, const char* file, int line, std::int64_t rank) {
  if (status == cudaSuccess) return;
  std::string name(call);
  name = name.substr(0, name.find('('));
  throw Error(
      name + " failed: " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")",
      advice_for(status), {.rank = rank, .file = file, .line = line});
}

}  // namespace stepscope::kernels::cuda
