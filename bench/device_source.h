#pragma once

/// Purpose: what records the device that steps run on, beside the operators of the host.
///
/// Usage:
///     recorded.device_source = device_source(runtime.device());
///
/// Caveats: CUPTI serves one tool a process, so beside nsys or compute-sanitizer a source of it
/// does not start. It has not been run on a GPU yet.

#include <functional>
#include <memory>

#include "topologies/device_runtime.h"
#include "tracer/capture_source.h"

namespace stepscope::bench {

/// Makes a source for one recording. Throws Error where there is none; the source itself may also
/// throw when it starts.
using DeviceSource = std::function<std::unique_ptr<tracer::CaptureSource>()>;

/// CUPTI for Device::cuda. Empty for Device::cpu, where the operators are everything.
DeviceSource device_source(topologies::Device device);

}  // namespace stepscope::bench
