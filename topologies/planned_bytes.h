#pragma once

/// Purpose: the bytes that one rank will allocate for parameters, gradients and optimizer state,
/// before anything is allocated. What a run then measures must equal them.
///
/// Usage:
///     const PlannedBytes bytes = planned_bytes(model, plan, rank, Optimizer::AdamW8bit);
///     if (bytes.total() > memory) refuse();
///
/// Caveats: tensors only; communication buffers, the allocator's rounding and the process itself
/// come on top, border exchange included (border_traffic).

#include <cstdint>
#include <optional>

#include "topologies/model.h"
#include "topologies/optimizer.h"
#include "topologies/shard_plan.h"
#include "topologies/state_policy.h"

namespace stepscope::topologies {

/// Bytes of the one step counter (float32) that PyTorch's AdamW keeps for every tensor it steps.
inline constexpr std::int64_t kTorchStepBytes = 4;

/// Of one rank, or of one of its tensors. What is called `numel` counts elements.
struct PlannedBytes {
  std::int64_t parameter = 0;      ///< bytes of the shards' storage, padding included
  std::int64_t gradient = 0;       ///< bytes, of what is stepped, in the parameter's type, padded
  std::int64_t moment = 0;         ///< bytes of 8-bit codes and absmax, or float32 moments
  std::int64_t code_tables = 0;    ///< kernels::kCodeTableBytes once where any state is 8-bit
  std::int64_t step_counters = 0;  ///< kTorchStepBytes a stepped tensor, Optimizer::AdamW only

  std::int64_t local_numel = 0;     ///< elements owned
  std::int64_t stepped_numel = 0;   ///< of these, elements that the step changes
  std::int64_t numel_8bit = 0;      ///< of these, elements with 8-bit state
  std::int64_t fp32_fallbacks = 0;  ///< pieces with FP32 state although 8-bit was asked for
  std::int64_t pieces_8bit = 0;     ///< pieces (state_policy.h) with 8-bit state
  std::int64_t pieces_fp32 = 0;     ///< pieces with FP32 state
  std::int64_t empty_shards = 0;    ///< tensors of which the rank owns no element

  /// StatePolicy::original only: blocks of 8-bit state of which the rank owns a part, but not all;
  /// elements of other ranks in them, whose moments this rank keeps, too; and the bytes it sends a
  /// step so that every owner of a part gets the gradient of the whole block.
  std::int64_t cut_blocks = 0;
  std::int64_t foreign_numel = 0;
  std::int64_t border_traffic = 0;

  /// Optimizer state: moment + code_tables + step_counters.
  std::int64_t state() const { return moment + code_tables + step_counters; }
  /// parameter + gradient + state().
  std::int64_t total() const { return parameter + gradient + state(); }
  /// Elements with FP32 state.
  std::int64_t numel_fp32() const { return stepped_numel - numel_8bit; }

  /// Adds `times` (which may be negative) `other`, code tables left out: they are no sum.
  void add(const PlannedBytes& other, std::int64_t times = 1);
  /// The code tables of a rank that has these pieces.
  void set_code_tables();
};

/// What decides the bytes beside model and plan.
struct StateOptions {
  Optimizer optimizer = Optimizer::AdamW8bit;
  std::optional<kernels::DType> dtype = {};  ///< replaces those of all parameters where given
  StatePolicy policy = StatePolicy::global;
  std::int64_t min_8bit_size = kMin8bitSize;
};

/// What `rank` of `plan` (made from `model`) allocates. Empty tensors have no state and no step
/// counter: they are not stepped. Throws Error for a rank outside the plan.
PlannedBytes planned_bytes(const Model& model, const ShardPlan& plan, std::int64_t rank,
                           const StateOptions& options);

/// The same, `dtype` and the rest as in StateOptions.
PlannedBytes planned_bytes(const Model& model, const ShardPlan& plan, std::int64_t rank,
                           Optimizer optimizer, std::optional<kernels::DType> dtype = {},
                           StatePolicy policy = StatePolicy::global,
                           std::int64_t min_8bit_size = kMin8bitSize);

/// The share of one of a rank's tensors, code tables left out.
PlannedBytes planned_tensor_bytes(const Model& model, const ShardPlan& plan,
                                  const LocalTensor& tensor, const StateOptions& options);

}  // namespace stepscope::topologies
