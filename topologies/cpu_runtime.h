#pragma once

/// Purpose: DeviceRuntime of the CPU.
///
/// Usage: through open_device.

#include <memory>

#include "topologies/device_runtime.h"

namespace stepscope::topologies {

/// Installs the counting allocator, whose numbers it reports.
std::unique_ptr<DeviceRuntime> open_cpu();

}  // namespace stepscope::topologies
