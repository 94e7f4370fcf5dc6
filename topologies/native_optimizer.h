#pragma once

/// Purpose: ShardedOptimizer over the project's own kernels (kernels/).
///
/// Usage: through make_sharded_optimizer.

#include <memory>

#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

/// As make_sharded_optimizer, for Subject::native on Device::cpu.
std::unique_ptr<ShardedOptimizer> make_native_optimizer(const Model& model, const ShardPlan& plan,
                                                        const StepConfig& config,
                                                        std::int64_t threads,
                                                        Communicator& communicator);

}  // namespace stepscope::topologies
