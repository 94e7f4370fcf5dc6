#pragma once

/// Purpose: what the GPUs of this process do: kernels, copies, sets and synchronizations, with the
/// API calls that started them, and n of optimizer kernels as their launches say it.
///
/// Usage: hand make_cupti_source(load_cupti()) to a Capture.
///
/// Launches are counted by callbacks of the driver (Process::launched), records that CUPTI or this
/// source had no room for in Process::dropped; a count that cannot be had is left out, never 0.
///
/// Caveats: CUPTI serves one tool a process: beside nsys or PyTorch's profiler start() fails. A
/// process that launches CUDA graphs has no count of launches, and its kernels no n: a graph's
/// launch does not say them.

#include <cstddef>
#include <memory>

#include "tracer/capture_source.h"
#include "tracer/cupti_api.h"

namespace stepscope::tracer {

struct CuptiOptions {
  std::size_t buffer_bytes = std::size_t{1} << 20;   ///< of one buffer
  std::size_t buffers = 64;                          ///< at most; what comes later is dropped
  std::size_t launch_bytes = std::size_t{16} << 20;  ///< for launches, 40 bytes each
};

std::unique_ptr<CaptureSource> make_cupti_source(std::unique_ptr<CuptiApi> cupti,
                                                 const CuptiOptions& options = {});

}  // namespace stepscope::tracer
