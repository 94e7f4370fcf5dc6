#pragma once

/// Purpose: the tensors of one rank, as libtorch tensors: parameters and gradients padded as FSDP2
/// pads them, and the optimizer's state. What is measured as bytes is read from these.
///
/// Usage: internal to the implementations of ShardedOptimizer.
///
/// Caveats: includes libtorch; keep out of other headers.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

/// The tensors of one stepped shard; views of the owned elements, without padding.
struct ShardTensorSet {
  at::Tensor param;    ///< [numel]
  at::Tensor grad;     ///< [numel]
  at::Tensor state1;   ///< [numel] uint8 or float32
  at::Tensor state2;   ///< likewise; undefined for Lion
  at::Tensor absmax1;  ///< [ceil(numel / 256)] float32; undefined for FP32 state
  at::Tensor absmax2;  ///< likewise; undefined for Lion and for FP32 state
};

class ShardStorage {
 public:
  /// Allocates for `rank` what planned_bytes() foretells, step counters excepted.
  ShardStorage(const Model& model, const ShardPlan& plan, std::int64_t rank,
               const StepConfig& config);

  /// Synthetic parameters and gradients; state zero; step 0.
  void restart();

  std::vector<ShardTensorSet>& tensor_sets() { return tensor_sets_; }
  std::vector<OwnedShard>& shards() { return shards_; }
  const std::vector<OwnedShard>& shards() const { return shards_; }

  /// All but step_count.
  MeasuredBytes measured_bytes() const;

 private:
  std::vector<at::Tensor> parameter_storage_;  ///< padded; of every parameter, stepped or not
  std::vector<at::Tensor> gradient_storage_;   ///< padded; of stepped parameters
  std::vector<ShardTensorSet> tensor_sets_;    ///< parallel to shards_
  std::vector<OwnedShard> shards_;
};

}  // namespace stepscope::topologies
