#pragma once

/// Purpose: libstepscope_tracer.so records libtorch's operators without needing libtorch: the
/// source stands in a second library beside it, libstepscope_tracer_torch.so, which is loaded only
/// into a process that has libtorch already.
///
/// Usage:  if (torch_is_loaded()) sources.push_back(load_torch_source());
///
/// Caveats: that library is built against one version of libtorch, whose C++ interface differs from
/// version to version.

#include <memory>

#include "tracer/capture_source.h"

namespace stepscope::tracer {

/// Whether libtorch_cpu.so is in this process.
bool torch_is_loaded();

/// Throws Error where libtorch is not in this process or the second library does not fit to it.
std::unique_ptr<CaptureSource> load_torch_source();

}  // namespace stepscope::tracer
