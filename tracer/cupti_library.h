#pragma once

/// Purpose: NVIDIA's libcupti.so.13, loaded at run time: nothing is linked, so that one build runs
/// with and without a GPU.
///
/// Usage:  std::unique_ptr<CuptiApi> cupti = load_cupti();
///
/// Caveats: looks for a libcupti that the process has loaded (PyTorch brings one) and then where
/// the dynamic linker looks; LD_LIBRARY_PATH may name its folder.

#include <memory>

#include "tracer/cupti_api.h"

namespace stepscope::tracer {

/// Whether CUDA's driver is in this process.
bool cuda_is_loaded();

/// Throws Error where there is none or it lacks a function.
std::unique_ptr<CuptiApi> load_cupti();

}  // namespace stepscope::tracer
