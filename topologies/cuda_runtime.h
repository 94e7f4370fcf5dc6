#pragma once

/// Purpose: DeviceRuntime of one CUDA device, with libtorch's caching allocator.
///
/// Usage: through open_device.
///
/// Caveats: libtorch's CUDA library is loaded here, at run time, so that a CPU run of a build with
/// CUDA needs neither a driver nor the seconds that loading it takes.

#include <cstdint>
#include <memory>

#include "topologies/device_runtime.h"

namespace stepscope::topologies {

/// Makes device `local_rank` the current one; where `sharing_ranks` of this host share its devices,
/// they are given out in turn, and each rank's available_bytes() is its share. Throws Error where
/// there is no such device.
std::unique_ptr<DeviceRuntime> open_cuda(std::int64_t local_rank, std::int64_t sharing_ranks);

}  // namespace stepscope::topologies
