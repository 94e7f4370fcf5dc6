#pragma once

/// Purpose: one optimizer step in the arithmetic `bnb-cuda`, scalar and on the host: the oracle of
/// the CUDA back end, and the means to see what a CPU step and a CUDA step of bitsandbytes differ
/// in.
///
/// Usage: `step_bnb_cuda_reference(Algorithm::AdamW, hyperparameters, tensors);`
///
/// Caveats: slow on purpose, one element after the other. Pointers are to host memory.

#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

/// Updates param and state of one shard in place. `tensors.step` is the number of this step,
/// from 1. numel = 0 touches nothing. See kernels/bnb_cuda.h for the arithmetic.
void step_bnb_cuda_reference(Algorithm algorithm, const Hyperparameters& hyperparameters,
                             const ShardTensors& tensors);

}  // namespace stepscope::kernels
