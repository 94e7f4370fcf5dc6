#pragma once

/// Purpose: the traffic of a training step as PyTorch's FSDP and DDP make it: a unit's parameters
/// are gathered in one collective before they are used, and its gradients reduced in one (FSDP) or
/// in buckets (DDP) after the backward pass.
///
/// Usage:
///     UnitExchange exchange(model, plan, units, config.dtype, config.device, communicator);
///     exchange.gather(unit, optimizer->local_views(), parameters);   // before they are used
///     exchange.reduce(unit, gradients, optimizer->local_views());    // after the backward pass
///     exchange.finish(optimizer->local_views());                     // before the step
///
/// What is computed is what PyTorch 2.13 computes, in the gradient's own data type:
///     fsdp2, hsdp   the mean (c10d's AVG); fp16: divided by about sqrt(N), summed, divided again
///     fsdp1         divided by about sqrt(N), summed, divided again
///     ddp           multiplied by 1 / N, summed
/// with N = world size, and under hsdp a reduce-scatter over the shards, then an all-reduce over
/// the replicas. Groups of one rank need no collective and make none.
///
/// Caveats: includes libtorch. Whole tensors and local views are memory of the communicator's
/// device. Collective: every rank calls the same in the same order.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "topologies/collective_kind.h"
#include "topologies/communicator.h"
#include "topologies/gradient_buckets.h"
#include "topologies/model.h"
#include "topologies/shard_plan.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

/// One collective that this rank took part in.
struct CollectiveRecord {
  CollectiveKind kind = CollectiveKind::all_gather;
  std::int64_t numel = 0;  ///< elements that this rank handed in
};

class UnitExchange {
 public:
  /// `units[u]` lists the parameters (indices into Model::parameters, ascending) of unit u; each
  /// parameter with storage of its own is in one. Under fsdp1 they must be the plan's units.
  /// Collective under hsdp. Throws Error where a parameter is missing, in two, or tied.
  UnitExchange(const Model& model, const ShardPlan& plan,
               std::vector<std::vector<std::size_t>> units, kernels::DType dtype, Device device,
               Communicator& communicator);

  std::size_t unit_count() const noexcept { return units_.size(); }
  const std::vector<std::size_t>& parameters(std::size_t unit) const {
    return units_.at(unit).parameters;
  }

  /// Whether parameters are spread over ranks. If not, each local view holds whole parameters, and
  /// nothing has to be gathered.
  bool sharded() const noexcept { return shards_ > 1; }

  /// Fills the unit's whole parameters: whole[i], contiguous, is parameters(unit)[i].
  void gather(std::size_t unit, std::span<const LocalView> local,
              std::span<const at::Tensor> whole);

  /// Reduces the unit's gradients (gradients[i] of parameters(unit)[i]; an undefined one counts as
  /// zero) and writes this rank's part where `local` points to; under ddp finish() does that.
  void reduce(std::size_t unit, std::span<const at::Tensor> gradients,
              std::span<const LocalView> local);

  /// Ends the reduction of one backward pass: every parameter's gradient is in `local` then. Throws
  /// Error where a unit was not reduced.
  void finish(std::span<const LocalView> local);

  /// The collectives since the last take_records(), in order.
  std::vector<CollectiveRecord> take_records();

 private:
  /// Elements [offset, offset + numel) of a unit's parameter are at `position` of its buffer.
  struct Piece {
    std::size_t parameter = 0;  ///< index into Unit::parameters
    std::int64_t offset = 0;
    std::int64_t numel = 0;
    std::int64_t position = 0;
  };
  /// A buffer is a chunk a shard; a chunk is padded local tensors, one after another.
  struct Layout {
    std::vector<std::size_t> tensors;  ///< indices into ShardPlan::units()
    std::vector<std::size_t> firsts;   ///< the first parameter of each, index as in Piece
    std::vector<std::int64_t> starts;  ///< of each within the chunk
    std::vector<std::int64_t> numels;  ///< of each, padding included
    std::int64_t chunk = 0;
    std::vector<Piece> pieces;  ///< of all shards
  };
  struct Unit {
    std::vector<std::size_t> parameters;
    Layout whole;    ///< of the gather
    Layout stepped;  ///< of the reduction: only what has a gradient
    bool reduced = false;
  };
  /// Divisors before and after the reduction; 1 divides nothing.
  struct Division {
    double before = 1;
    double after = 1;
    Reduction reduction = Reduction::sum;
  };

  static Layout lay_out(const ShardPlan& plan, const std::vector<std::size_t>& parameters,
                        const std::vector<std::size_t>& tensors, bool only_stepped);
  static Division division(Topology topology, kernels::DType dtype, std::int64_t ranks);
  at::Tensor view(void* data, std::int64_t numel) const;
  at::Tensor packed(const Layout& layout, std::span<const at::Tensor> gradients) const;
  void record(CollectiveKind kind, std::int64_t numel) { records_.push_back({kind, numel}); }

  Topology topology_;
  std::int64_t shards_;
  std::int64_t replicas_;
  kernels::DType dtype_;
  at::TensorOptions options_;
  Division division_;
  std::unique_ptr<Communicator> split_shards_, split_replicas_;  ///< hsdp only
  Communicator* shard_group_ = nullptr;    ///< between the ranks of one replica
  Communicator* replica_group_ = nullptr;  ///< between the ranks that hold one shard
  std::vector<Unit> units_;
  std::optional<GradientBuckets> buckets_;  ///< ddp only
  std::vector<CollectiveRecord> records_;
};

}  // namespace stepscope::topologies
