#pragma once

/// Purpose: which elements of which parameter a rank owns, for every topology. Pure arithmetic:
/// nothing is allocated in proportion to the world size, so that millions of ranks can be planned.
///
/// Usage:
///     const ShardPlan plan = ShardPlan::make(model, Topology::fsdp2, world_size);
///     for (const LocalTensor& tensor : plan.local_tensors(rank)) ...
///
/// One rule covers all topologies. A unit (a parameter; under fsdp1 a flat unit) is a row of
/// elements, cut into equal chunks; shard s owns the s-th:
///     single, ddp    one chunk: everything
///     fsdp2, hsdp    ceil(rows / shards) rows of the parameter, as torch.chunk cuts dimension 0
///     fsdp1          ceil(elements / shards) elements of the unit
/// The last shard that owns anything may own less than a chunk, later ones own nothing; their
/// storage is a chunk all the same. What the optimizer is handed is the owned part, but under fsdp1
/// the whole chunk: padding is part of PyTorch's FlatParameter, and is stepped with a zero
/// gradient.
///
/// Caveats: a tied parameter has no shard; its owner has the only one. Frozen parameters and those
/// without a gradient are sharded like the others (their bytes exist), but are not stepped
/// (is_stepped in model.h). Under fsdp1 that holds for whole units: a parameter without a gradient
/// beside one that has one is stepped with a zero gradient, as PyTorch's FlatParameter is, so that
/// weight decay reaches it.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "topologies/model.h"
#include "topologies/wrapping.h"

namespace stepscope::topologies {

enum class Topology {
  single,  ///< one rank that owns everything
  ddp,     ///< PyTorch's DistributedDataParallel: every rank owns everything
  fsdp2,   ///< PyTorch's fully_shard on a one-dimensional mesh
  hsdp,    ///< fully_shard on a mesh of replicas x shards; rank = replica * shards + shard
  fsdp1,   ///< PyTorch's FullyShardedDataParallel, use_orig_params=False
};

/// All of them, in the order of the enumeration.
const std::vector<Topology>& all_topologies();

/// "single", "ddp", "fsdp2", "hsdp" or "fsdp1".
std::string_view topology_name(Topology topology);

/// The inverse of topology_name. Throws Error listing the names otherwise.
Topology parse_topology(std::string_view name);

struct PlanOptions {
  Topology topology = Topology::fsdp2;
  std::int64_t world_size = 1;
  std::int64_t replicas = 1;  ///< groups of ranks that hold one copy each; read for hsdp only
  Wrapping wrapping = {};     ///< read for fsdp1 only
};

/// A contiguous piece of one parameter inside a local tensor. Counts and places in elements.
struct Range {
  std::size_t parameter = 0;  ///< index into Model::parameters
  std::int64_t offset = 0;    ///< first element, within the parameter
  std::int64_t numel = 0;     ///< at least 1
  std::int64_t position = 0;  ///< of the first element, within the local tensor
};

/// What the optimizer of one rank is handed as one tensor: a parameter's shard or, under fsdp1, a
/// flat unit's.
struct LocalTensor {
  std::size_t unit = 0;           ///< index into ShardPlan::units()
  std::int64_t numel = 0;         ///< elements the optimizer sees: fsdp1's include padding
  std::int64_t padded_numel = 0;  ///< elements of the storage
  std::int64_t global_numel = 0;  ///< of the whole parameter, or of the whole flat unit unpadded
  bool stepped = false;           ///< trainable, with a gradient; a tensor of numel 0 is not
                                  ///< stepped whatever this says
  std::vector<Range> ranges;      ///< ascending in position; none for a shard that owns nothing
};

/// Who owns elements [offset, offset + numel) of a parameter.
struct Owner {
  std::int64_t shard = 0;  ///< 0 .. shards() - 1; rank = replica * shards() + shard
  std::int64_t offset = 0;
  std::int64_t numel = 0;
};

/// One rank's part of one parameter where parameters are sharded alone (all topologies but fsdp1).
/// Rows are slices along dimension 0 (a scalar is one row).
struct LocalShard {
  std::size_t parameter = 0;      ///< index into Model::parameters
  std::int64_t row_offset = 0;    ///< first row; the parameter's number of rows where it is empty
  std::int64_t rows = 0;          ///< rows owned
  std::int64_t offset = 0;        ///< first element, within the parameter
  std::int64_t numel = 0;         ///< elements owned; 0 for an empty shard
  std::int64_t padded_numel = 0;  ///< elements of the storage: that of the first rank's shard
};

class ShardPlan {
 public:
  /// Throws Error where the model is not valid, the world size is below 1, topology single has more
  /// than one rank, replicas do not divide hsdp's world size, a topology that shards meets a scalar
  /// parameter (PyTorch refuses those, too), or wrap() (wrapping.h) refuses.
  static ShardPlan make(const Model& model, const PlanOptions& options);
  static ShardPlan make(const Model& model, Topology topology, std::int64_t world_size) {
    return make(model, PlanOptions{.topology = topology, .world_size = world_size});
  }

  const PlanOptions& options() const noexcept { return options_; }
  Topology topology() const noexcept { return options_.topology; }
  std::int64_t world_size() const noexcept { return options_.world_size; }

  /// Ranks that a unit is spread over: 1 for single and ddp, the world size for fsdp2 and fsdp1,
  /// world size / replicas for hsdp.
  std::int64_t shards() const noexcept { return shards_; }

  /// Ranks that hold the same shard: world_size() / shards().
  std::int64_t replicas() const noexcept { return options_.world_size / shards_; }

  /// The shard that `rank` holds: rank % shards().
  std::int64_t shard_of(std::int64_t rank) const;

  /// The parameters of each unit (indices into Model::parameters, ascending): one a unit but for
  /// fsdp1. Units are in the order of their first parameter; tied parameters are left out.
  std::vector<std::vector<std::size_t>> units() const;
  std::size_t unit_count() const noexcept { return units_.size(); }
  const std::vector<std::size_t>& parameters(std::size_t unit) const {
    return units_.at(unit).parameters;
  }

  /// What the optimizer of `rank` is handed: one tensor a unit, in the order of units(), empty ones
  /// included.
  std::vector<LocalTensor> local_tensors(std::int64_t rank) const;

  /// The tensor of one unit on the ranks that hold `shard`.
  LocalTensor local_tensor(std::size_t unit, std::int64_t shard) const;

  /// The shards that own elements [offset, offset + numel) of `parameter`, ascending, each with its
  /// part. Throws Error for a tied parameter and for elements that do not exist.
  std::vector<Owner> owners(std::size_t parameter, std::int64_t offset, std::int64_t numel) const;

  /// The shards of `rank` in the model's order, empty ones included, tied parameters left out.
  /// Throws Error under fsdp1, where shards are not of parameters.
  std::vector<LocalShard> local_shards(std::int64_t rank) const;

  /// Elements that `rank` owns, padding not counted.
  std::int64_t local_numel(std::int64_t rank) const;

 private:
  struct Unit {
    std::vector<std::size_t> parameters;  ///< ascending
    std::vector<std::int64_t> starts;     ///< first element of each within the unit, then the end
    std::int64_t rows = 0;                ///< of the parameter; under fsdp1 elements are rows
    std::int64_t width = 1;               ///< elements a row
    std::int64_t chunk = 0;               ///< elements a shard, as above
    bool stepped = false;

    std::int64_t numel() const { return starts.back(); }
    /// First element of `shard`, or the end of the unit.
    std::int64_t first(std::int64_t shard) const;
  };
  /// Where a parameter is; tied ones are nowhere.
  struct Place {
    std::size_t unit = kNowhere;
    std::size_t index = 0;  ///< within the unit
  };
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

  ShardPlan(PlanOptions options, std::int64_t shards);
  void add_unit(const Model& model, std::vector<std::size_t> parameters);

  PlanOptions options_;
  std::int64_t shards_;
  std::vector<Unit> units_;
  std::vector<Place> places_;  ///< by parameter
};

}  // namespace stepscope::topologies
