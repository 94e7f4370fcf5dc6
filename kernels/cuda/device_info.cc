#include "kernels/cuda/device_info.h"

#include <cuda_runtime_api.h>

#include "core/error.h"
#include "kernels/cuda/cuda_check.h"

namespace stepscope::kernels::cuda {

int device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    // The error would otherwise be reported again by the next call that looks for one.
    static_cast<void>(cudaGetLastError());
    throw Error(std::string("no CUDA device: ") +
                    (status != cudaSuccess ? cudaGetErrorString(status) : "the driver lists none"),
                "run with --device cpu");
  }
  return count;
}

DeviceInfo device_info(int ordinal, std::int64_t rank) {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count) {
    throw Error("CUDA device " + std::to_string(ordinal) + " was asked for, and there are " +
                    std::to_string(count),
                "start at most one rank a device, or set CUDA_VISIBLE_DEVICES", {.rank = rank});
  }
  cudaDeviceProp properties{};
  STEPSCOPE_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal), rank);
  DeviceInfo info;
  info.ordinal = ordinal;
  info.name = properties.name;
  info.uuid = uuid_text(reinterpret_cast<const unsigned char*>(properties.uuid.bytes));
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  info.l2_cache_bytes = properties.l2CacheSize;
  STEPSCOPE_CUDA_CHECK(cudaDriverGetVersion(&info.driver_version), rank);
  STEPSCOPE_CUDA_CHECK(cudaRuntimeGetVersion(&info.runtime_version), rank);
  return info;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string uuid_text(const unsigned char* bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

}  // namespace stepscope::kernels::cuda
