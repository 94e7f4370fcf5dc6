#include "topologies/device_runtime.h"

#include "core/error.h"
#include "topologies/cpu_runtime.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "topologies/cuda_runtime.h"
#endif

namespace stepscope::topologies {

std::string_view device_name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

Device parse_device(std::string_view name) {
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (name == device_name(device)) return device;
  }
  throw Error("unknown device \"" + std::string(name) + "\"", "give cpu or cuda");
}

std::unique_ptr<DeviceRuntime> open_device(Device device, [[maybe_unused]] std::int64_t local_rank,
                                           [[maybe_unused]] std::int64_t sharing_ranks) {
  if (device == Device::cpu) return open_cpu();
#ifdef STEPSCOPE_WITH_CUDA
  return open_cuda(local_rank, sharing_ranks);
#else
  throw Error("this build has no CUDA back end",
              "configure with -DSTEPSCOPE_CUDA=ON, or run with --device cpu");
#endif
}

}  // namespace stepscope::topologies
