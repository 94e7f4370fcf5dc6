#pragma once

/// Purpose: one optimizer step in plain scalar code: what every other CPU kernel must equal bit for
/// bit.
///
/// Usage: `step_reference(Algorithm::AdamW, hyperparameters, shard);`
///
/// Caveats: host memory only; one thread; slow. NaN payloads are not specified.

#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

/// Updates param, the states and the absmaxes of one shard by the arithmetic `bnb-cpu`. A shard of
/// numel 0 is left alone. Throws Error for what validate() refuses.
void step_reference(Algorithm algorithm, const Hyperparameters& hyperparameters,
                    const ShardTensors& shard);

/// The same by the rule of torch.optim.AdamW: fp32 parameters and fp32 state. Throws Error for
/// another dtype or format.
void step_torch_adamw_reference(const Hyperparameters& hyperparameters, const ShardTensors& shard);

}  // namespace stepscope::kernels
