#pragma once

/// Purpose: turn an error of the CUDA runtime into an Error that names the call, the source line
/// and the rank.
///
/// Usage: `STEPSCOPE_CUDA_CHECK(cudaMalloc(&pointer, bytes), rank);`
///
/// Caveats: an error of an earlier asynchronous launch may be reported by any later call; the
/// message says so where that is the case.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stepscope::kernels::cuda {

/// Throws Error unless `status` is cudaSuccess. `call` is the text of the call. `rank` may be -1.
void check(cudaError_t status, const char* call, const char* file, int line, std::int64_t rank);

}  // namespace stepscope::kernels::cuda

#define STEPSCOPE_CUDA_CHECK(call, rank) \
  ::stepscope::kernels::cuda::check((call), #call, __FILE__, __LINE__, (rank))
