#pragma once

/// Purpose: the scalar kernel over a range of blocks, which the reference and the baseline target
/// of the CPU back end share.
///
/// Usage: `step_blocks_scalar(algorithm, coefficients, shard, 0, block_count(shard.numel));`
///
/// Caveats: nothing is validated here.

#include "kernels/bnb_cpu.h"
#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

/// Steps the elements of blocks [first_block, end_block) of `shard`; FP32 state is cut into blocks
/// of 256 elements, too. Never throws.
void step_blocks_scalar(Algorithm algorithm, const Coefficients& coefficients,
                        const ShardTensors& shard, std::int64_t first_block,
                        std::int64_t end_block) noexcept;

}  // namespace stepscope::kernels
