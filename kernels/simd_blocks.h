#pragma once

/// Purpose: the SIMD kernel over a range of blocks, chosen for this processor at run time.
///
/// Usage: `simd_step_blocks()(algorithm, coefficients, shard, first_block, end_block);`
///
/// Caveats: nothing is validated here; see kernels/scalar_blocks.h for what a range is.

#include <cstdint>

#include "kernels/bnb_cpu.h"
#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

using StepBlocks = void (*)(Algorithm algorithm, const Coefficients& coefficients,
                            const ShardTensors& shard, std::int64_t first_block,
                            std::int64_t end_block) noexcept;

/// The kernel of the best instruction set, or of the forced one (kernels/cpu_step.h).
StepBlocks simd_step_blocks();

}  // namespace stepscope::kernels
