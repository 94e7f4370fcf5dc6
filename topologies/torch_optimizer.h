#pragma once

/// Purpose: ShardedOptimizer over libtorch's fused AdamW, with FP32 moments.
///
/// Usage: through make_sharded_optimizer.

#include <memory>

#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

/// As make_sharded_optimizer, for Subject::torch.
std::unique_ptr<ShardedOptimizer> make_torch_optimizer(const Model& model, const ShardPlan& plan,
                                                       std::int64_t rank, const StepConfig& config,
                                                       std::int64_t threads);

}  // namespace stepscope::topologies
