#pragma once

/// Purpose: ShardedOptimizer over the project's CUDA kernels: one launch a step for all shards of a
/// rank. Under `original` copies within the device and one all-to-all go before it, and copies of
/// the cut blocks' own parts after it.
///
/// Usage: through make_sharded_optimizer.
///
/// Caveats: compiled, and its kernel is run on the CPU by tests; not yet run on a GPU.

#include <memory>

#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

/// As make_sharded_optimizer, for Subject::native on Device::cuda.
std::unique_ptr<ShardedOptimizer> make_cuda_optimizer(const Model& model, const ShardPlan& plan,
                                                      const StepConfig& config,
                                                      Communicator& communicator);

}  // namespace stepscope::topologies
