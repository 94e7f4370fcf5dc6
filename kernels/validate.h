#pragma once

/// Purpose: refuse what no kernel can step: missing, misaligned or overlapping tensors, a gradient
/// of another type than the parameter, absmaxes of another number than the blocks, impossible sizes
/// and hyperparameters.
///
/// Usage: `validate(Algorithm::AdamW, hyperparameters, shard);` every back end calls it.
///
/// Caveats: values are not looked at: what NaN and Inf in a gradient do is the arithmetic's
/// business (kernels/bnb_cpu.h, kernels/bnb_cuda.h). Tensors of different shards are not compared
/// with each other: kernels/shard_overlap.h does that.

#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

/// Throws Error for a hyperparameter that is not finite in float32 or out of range: learning rate,
/// epsilon and weight decay >= 0, betas in [0, 1).
void validate(const Hyperparameters& hyperparameters);

/// Throws Error, too, for a step below 1, a negative or unaddressable numel, and, unless numel is
/// 0, for types of parameter and gradient that differ, an absmax_count other than ceil(numel / 256)
/// (0 with float32 state), and a null, misaligned or overlapping tensor or one that the state
/// format has no place for.
void validate(Algorithm algorithm, const Hyperparameters& hyperparameters,
              const ShardTensors& shard);

}  // namespace stepscope::kernels
