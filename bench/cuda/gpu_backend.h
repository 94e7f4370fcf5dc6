#pragma once

/// Purpose: the KernelBackend of the first CUDA device that this process may use.
///
/// Usage: through open_kernel_backend.
///
/// Caveats: not yet run on a GPU. NVML must be there: figures without the clocks beside them are
/// not taken.

#include <memory>

#include "bench/kernel_backend.h"

namespace stepscope::bench {

/// Throws Error in one line for a missing driver, device, NVML, PyTorch or bitsandbytes library.
std::unique_ptr<KernelBackend> open_gpu_backend(const KernelBackendOptions& options);

}  // namespace stepscope::bench
