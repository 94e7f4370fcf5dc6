#pragma once

/// Purpose: parameters and gradients for a measurement, the same whatever the sharding: an
/// element's value depends on the parameter and on the element's place in it, never on rank or
/// world size.
///
/// Usage:  fill_parameter(DType::bf16, shard, /*parameter=*/3, /*first=*/offset, numel);
///
/// Caveats: values have 8 significant bits and moderate exponents, so that they are exact in fp32,
/// bf16 and fp16: cases that differ in dtype start from the same numbers. Parameters lie in
/// +-[2^-9, 2^-3); gradients in +-[2^-13, 2^-5), and one in sixteen is zero, as in rows of an
/// embedding that no token used.

#include <cstdint>

#include "kernels/shard_tensors.h"

namespace stepscope::topologies {

/// Writes `count` elements of `dtype` to host memory at `destination`: elements [first, first +
/// count) of the parameter with this index in the model.
void fill_parameter(kernels::DType dtype, void* destination, std::uint64_t parameter,
                    std::int64_t first, std::int64_t count);

/// The gradient of the same elements.
void fill_gradient(kernels::DType dtype, void* destination, std::uint64_t parameter,
                   std::int64_t first, std::int64_t count);

}  // namespace stepscope::topologies
