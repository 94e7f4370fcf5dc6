#pragma once

/// Purpose: one training step of the network on one rank, with the traffic of PyTorch's FSDP: a
/// unit's parameters are whole only while the unit is computed.
///
/// Usage:
///     TrainingStep training(network, plan, config, *optimizer, communicator);
///     const float loss = training.run(batch);   // forward, backward, reduction, optimizer
///
/// What is gathered when (as PyTorch 2.13's fully_shard and FSDP1 with full sharding do it):
///     the root   once, before it is used; kept until the end of the backward pass
///     a block    before its forward pass, and again before its backward pass
/// Every unit's gradients are reduced once. Without sharding (single, ddp, one shard) the network
/// computes on the optimizer's own parameters and nothing is gathered.
///
/// Caveats: includes libtorch; CPU. Collective: every rank takes the same steps. No gather overlaps
/// with computation, as PyTorch's do on a GPU.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/train_network.h"
#include "bench/train_text.h"
#include "topologies/communicator.h"
#include "topologies/shard_plan.h"
#include "topologies/sharded_optimizer.h"
#include "topologies/unit_exchange.h"

namespace stepscope::bench {

class TrainingStep {
 public:
  /// Everything given must outlive this. Collective under hsdp.
  TrainingStep(const TrainNetwork& network, const topologies::ShardPlan& plan,
               const topologies::StepConfig& config, topologies::ShardedOptimizer& optimizer,
               topologies::Communicator& communicator);

  /// Writes the network's initial values into this rank's shards, with zero state. Collective.
  void start();

  /// One step on this rank's batch. Returns the rank's own loss before the update.
  float run(const TextBatch& batch);

  /// The rank's own loss on `batch`; nothing is changed.
  float evaluate(const TextBatch& batch);

  /// The collectives of the last run().
  const std::vector<topologies::CollectiveRecord>& collectives() const { return collectives_; }

 private:
  /// Whether a unit's parameters are gathered for a short while; otherwise they are always there.
  void gather(std::size_t unit);
  void release(std::size_t unit);
  void reduce(std::size_t unit);
  at::Tensor forward(std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs,
                     const TextBatch& batch);
  void backward(std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs,
                const at::Tensor& loss);

  const TrainNetwork& network_;
  topologies::ShardedOptimizer& optimizer_;
  topologies::UnitExchange exchange_;
  std::vector<topologies::LocalView> local_;
  std::vector<std::vector<at::Tensor>> whole_;  ///< by unit: parameters that autograd sees
  std::vector<topologies::CollectiveRecord> collectives_;
};

}  // namespace stepscope::bench
