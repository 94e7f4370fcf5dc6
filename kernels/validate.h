#pragma once

/// Purpose: refuse what no kernel can step: missing or misaligned or overlapping tensors,
/// impossible sizes and hyperparameters.
///
/// Usage: `validate(Algorithm::AdamW, hyperparameters, shard);` every back end calls it.
///
/// Caveats: values are not looked at (a NaN in a gradient is the arithmetic's business), and
/// tensors of different shards are not compared with each other.

#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

/// Throws Error for a hyperparameter that is not finite in float32 or out of range: learning rate,
/// epsilon and weight decay >= 0, betas in [0, 1).
void validate(const Hyperparameters& hyperparameters);

/// Throws Error, too, for a step below 1, a negative or unaddressable numel, and, unless numel is
/// 0, a null, misaligned or overlapping tensor or one that the state format has no place for.
void validate(Algorithm algorithm, const Hyperparameters& hyperparameters,
              const ShardTensors& shard);

}  // namespace stepscope::kernels
