#pragma once

/// Purpose: the data types of kernels/ as libtorch names them.
///
/// Usage:  at::from_blob(data, {numel}, scalar_type(DType::bf16));
///
/// Caveats: includes libtorch; keep out of headers that need not.

#include <c10/core/ScalarType.h>

#include "kernels/shard_tensors.h"

namespace stepscope::topologies {

c10::ScalarType scalar_type(kernels::DType dtype);

}  // namespace stepscope::topologies
