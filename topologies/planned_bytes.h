#pragma once

/// Purpose: the bytes that one rank will allocate for parameters, gradients and optimizer state,
/// before anything is allocated. What a run then measures must equal them.
///
/// Usage:
///     const PlannedBytes bytes = planned_bytes(model, plan, rank, Optimizer::AdamW8bit);
///     if (bytes.total() > memory) refuse();
///
/// Caveats: tensors only; communication buffers, the allocator's rounding and the process itself
/// come on top.

#include <cstdint>
#include <optional>

#include "topologies/model.h"
#include "topologies/optimizer.h"
#include "topologies/shard_plan.h"
#include "topologies/state_policy.h"

namespace stepscope::topologies {

/// Bytes of the one step counter (float32) that PyTorch's AdamW keeps for every parameter it steps.
inline constexpr std::int64_t kTorchStepBytes = 4;

/// All in bytes, but for the last three fields.
struct PlannedBytes {
  std::int64_t parameter = 0;      ///< storage of the shards, FSDP2's padding included
  std::int64_t gradient = 0;       ///< of stepped parameters, in the parameter's type, with padding
  std::int64_t moment = 0;         ///< 8-bit codes and absmax, or float32 moments
  std::int64_t code_tables = 0;    ///< kernels::kCodeTableBytes once where any state is 8-bit
  std::int64_t step_counters = 0;  ///< kTorchStepBytes a stepped shard, Optimizer::AdamW only

  std::int64_t local_numel = 0;     ///< elements owned
  std::int64_t stepped_numel = 0;   ///< of these, elements that the step changes
  std::int64_t fp32_fallbacks = 0;  ///< shards with FP32 state although 8-bit was asked for

  /// Optimizer state: moment + code_tables + step_counters.
  std::int64_t state() const { return moment + code_tables + step_counters; }
  /// parameter + gradient + state().
  std::int64_t total() const { return parameter + gradient + state(); }
};

/// What `rank` of `plan` (made from `model`) allocates. `dtype` replaces the data types of all
/// parameters where given. Empty shards have no state and no step counter: they are not stepped.
/// Throws Error for a rank outside the plan.
PlannedBytes planned_bytes(const Model& model, const ShardPlan& plan, std::int64_t rank,
                           Optimizer optimizer, std::optional<kernels::DType> dtype = {},
                           StatePolicy policy = StatePolicy::global,
                           std::int64_t min_8bit_size = kMin8bitSize);

}  // namespace stepscope::topologies
