#pragma once

/// Purpose: the tensors of one rank, as libtorch tensors: parameters and gradients as the topology
/// hands them out, and the optimizer's state. What is measured as bytes is read from these.
///
/// Usage: internal to the implementations of ShardedOptimizer.
///
/// Caveats: includes libtorch; keep out of other headers.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topologies/border_exchange.h"
#include "topologies/sharded_optimizer.h"
#include "topologies/step_layout.h"

namespace stepscope::topologies {

/// The tensors of one stepped piece (step_layout.h).
struct ShardTensorSet {
  at::Tensor param;    ///< [numel], a view of the local tensor, or a cut block's copy
  at::Tensor grad;     ///< likewise
  at::Tensor state1;   ///< [numel] uint8 or float32
  at::Tensor state2;   ///< likewise; undefined for Lion
  at::Tensor absmax1;  ///< [ceil(numel / 256)] float32; undefined for FP32 state
  at::Tensor absmax2;  ///< likewise; undefined for Lion and for FP32 state
};

/// One cut block's own part in the local tensors, to copy from and back to.
struct OwnPart {
  std::byte* param = nullptr;        ///< in the local tensor
  std::byte* grad = nullptr;         ///< likewise
  std::byte* block_param = nullptr;  ///< the same elements in the block's copy
  std::byte* block_grad = nullptr;   ///< likewise
  std::size_t bytes = 0;
};

class ShardStorage {
 public:
  /// Allocates for `rank` what planned_bytes() foretells, step counters excepted, and copies of cut
  /// blocks.
  ShardStorage(const Model& model, const ShardPlan& plan, std::int64_t rank,
               const StepConfig& config);

  /// Synthetic parameters and gradients in the local tensors; state zero; step 0. Copies of cut
  /// blocks are not filled: exchange_borders() does.
  void restart();

  /// `steps[i]` becomes the number of the last step of shards()[i].
  void set_steps(std::span<const std::int64_t> steps);

  std::vector<ShardTensorSet>& tensor_sets() { return tensor_sets_; }
  std::vector<OwnedShard>& shards() { return shards_; }
  const std::vector<OwnedShard>& shards() const { return shards_; }
  const BorderPlan& borders() const { return layout_.borders; }
  const std::vector<OwnPart>& own_parts() const { return own_parts_; }  ///< by cut block

  /// Start of each cut block's copy of parameters or gradients.
  std::vector<std::byte*> block_params() const;
  std::vector<std::byte*> block_grads() const;

  std::vector<LocalView> local_views() const;

  /// All but step_count.
  MeasuredBytes measured_bytes() const;

 private:
  struct State {
    at::Tensor state1, state2, absmax1, absmax2;
  };
  void allocate_states(const StepConfig& config, std::int64_t rank);
  void add_piece(const StepPiece& piece);

  kernels::DType dtype_;
  StepLayout layout_;
  std::vector<LocalTensor> local_tensors_;
  std::vector<at::Tensor> params_;  ///< by local tensor, padded; stepped or not
  std::vector<at::Tensor> grads_;   ///< by local tensor, padded; undefined where not stepped
  std::vector<State> states_;       ///< by StepLayout::states
  std::vector<ShardTensorSet> tensor_sets_;  ///< parallel to shards_
  std::vector<OwnedShard> shards_;
  std::vector<OwnPart> own_parts_;
  std::vector<at::Tensor> block_params_, block_grads_;  ///< by cut block
};

}  // namespace stepscope::topologies
