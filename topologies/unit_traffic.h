#pragma once

/// Purpose: what the unit collectives of a training step will move, for any model, topology and
/// world size, before anything is allocated. What UnitExchange then moves must equal it.
///
/// Usage:
///     const UnitTraffic traffic = plan_unit_traffic(model, plan);
///     print(traffic.all_gather.calls, traffic.all_gather.bytes);
///
/// Which collectives a step makes is PyTorch's choice (training.md): a unit's parameters are
/// gathered before its forward and again before its backward pass, the root's once; every unit's
/// gradients are reduced once; ddp reduces in buckets. What a unit is:
///     fsdp2, hsdp   each numbered module ("layers.7": the first number in a name ends the unit),
///                   and the root, which is everything else
///     fsdp1         the plan's flat units; the root is the one unit that spans the whole model:
///     its
///                   parameters have no module in common that not all parameters have
/// Where no unit or more than one is such, none is the root, and each is gathered twice.
///
/// Caveats: every rank moves the same, because shards are padded to one size. Bytes are those that
/// a rank hands to the collective; what the network carries depends on the algorithm (a ring sends
/// (ranks - 1) times the bytes of an all-gather). The exchange of cut blocks under `original` is
/// the optimizer's, and in planned_bytes.h.

#include <cstdint>
#include <vector>

#include "topologies/model.h"
#include "topologies/shard_plan.h"

namespace stepscope::topologies {

/// One kind of collective in one training step.
struct CollectiveTraffic {
  std::int64_t ranks = 1;  ///< of the group: the shards, or under hsdp and ddp the replicas
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  ///< of all calls: what a rank hands in
};

struct UnitTraffic {
  CollectiveTraffic all_gather;      ///< of parameters, over the shards
  CollectiveTraffic reduce_scatter;  ///< of gradients, over the shards
  CollectiveTraffic all_reduce;      ///< of gradients, over the replicas
};

/// What is gathered at once.
struct TrafficUnit {
  std::vector<std::size_t> tensors;  ///< indices into ShardPlan::units(), ascending
  bool root = false;                 ///< gathered once a step, and kept
};

/// The units of `plan`, which was made from `model`, by the rules above.
std::vector<TrafficUnit> traffic_units(const Model& model, const ShardPlan& plan);

/// The collectives of one training step on any rank. Throws Error where a number of bytes does not
/// fit in 64 bits.
UnitTraffic plan_unit_traffic(const Model& model, const ShardPlan& plan);

}  // namespace stepscope::topologies
