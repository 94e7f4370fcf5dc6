#pragma once

/// Purpose: what a rank's optimizer steps over: contiguous pieces with their place in the local
/// tensors and in the state. Pure arithmetic; ShardStorage allocates it.
///
/// Usage:  const StepLayout layout = step_layout(model, plan, rank, config.optimizer, policy,
/// min_8bit_size);
///
/// Caveats: under `original` a piece that is a cut block (border_exchange.h) works on a copy of the
/// whole block, of which this rank owns a part; all other pieces work in place.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/shard_tensors.h"
#include "topologies/border_exchange.h"
#include "topologies/model.h"
#include "topologies/optimizer.h"
#include "topologies/shard_plan.h"
#include "topologies/state_policy.h"

namespace stepscope::topologies {

struct StepPiece {
  std::vector<Range> ranges;  ///< positions within the piece; elements in none are padding
  std::int64_t numel = 0;     ///< at least 1
  kernels::StateFormat format = kernels::StateFormat::fp32;
  std::size_t state = 0;          ///< index into StepLayout::states
  std::int64_t state_offset = 0;  ///< first element within that state; a multiple of 256
  std::size_t tensor = 0;         ///< index into ShardPlan::local_tensors(rank)
  std::int64_t position = 0;      ///< first element within that tensor, unless it is a cut block
  std::optional<std::size_t> cut_block;  ///< index into StepLayout::borders.blocks
};

struct StepLayout {
  std::vector<StatePiece> states;  ///< one allocation of moments each
  std::vector<StepPiece> pieces;   ///< in the order of tensors and positions
  BorderPlan borders;              ///< empty unless the policy is `original`
};

StepLayout step_layout(const Model& model, const ShardPlan& plan, std::int64_t rank,
                       Optimizer optimizer, StatePolicy policy, std::int64_t min_8bit_size);

}  // namespace stepscope::topologies
