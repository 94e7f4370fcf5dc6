#pragma once

/// Purpose: what the contracts are to expect of a rank's step, worked out from the shard plan.
///
/// Usage:
///     tracer::ExpectedPlan expected{.world_size = plan.world_size()};
///     expected.ranks[3] = expected_rank(model, plan, 3, steps);
///
/// Caveats: pure arithmetic; whether there is an exchange of cut blocks depends on all ranks
/// (ExpectedPlan::collectives), and is the caller's to say.

#include <cstdint>

#include "topologies/model.h"
#include "topologies/optimizer.h"
#include "topologies/shard_plan.h"
#include "topologies/state_policy.h"
#include "tracer/expected_plan.h"

namespace stepscope::bench {

/// Collectives of a step in which some border cuts a block (state policy `original`).
inline constexpr auto kBorderCollective = tracer::CollectiveKind::all_to_all;

/// What decides into which pieces a local tensor is stepped.
struct SteppedState {
  topologies::Optimizer optimizer = topologies::Optimizer::AdamW8bit;
  topologies::StatePolicy policy = topologies::StatePolicy::global;
  std::int64_t min_8bit_size = topologies::kMin8bitSize;
};

/// The pieces that `rank` steps: its local tensors, and under `original` the parts of them, cut
/// blocks whole.
tracer::ExpectedRank expected_rank(const topologies::Model& model,
                                   const topologies::ShardPlan& plan, std::int64_t rank,
                                   const SteppedState& state);

}  // namespace stepscope::bench
