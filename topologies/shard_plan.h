#pragma once

/// Purpose: which elements of which parameter a rank owns. Pure arithmetic: nothing is allocated in
/// proportion to the world size, so that thousands of ranks can be planned.
///
/// Usage:
///     const ShardPlan plan = ShardPlan::make(model, Topology::fsdp2, world_size);
///     for (const LocalShard& shard : plan.local_shards(rank)) ...
///
/// Caveats: a tied parameter has no shard; its owner has the only one. Frozen parameters and those
/// without a gradient are sharded like the others (their bytes exist), but are not stepped
/// (is_stepped in model.h).

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "topologies/model.h"

namespace stepscope::topologies {

enum class Topology {
  single,  ///< one rank that owns everything
  fsdp2,   ///< PyTorch's fully_shard: Shard(0), ceil(rows / world size) rows a rank
};

/// "single" or "fsdp2".
std::string_view topology_name(Topology topology);

/// The inverse of topology_name. Throws Error listing the names otherwise.
Topology parse_topology(std::string_view name);

/// One rank's part of one parameter. Rows are slices along dimension 0 (a scalar is one row).
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
  /// Throws Error where the model is not valid, `world_size` is below 1, topology single has more
  /// than one rank, or fsdp2 meets a scalar parameter (PyTorch refuses those, too).
  static ShardPlan make(const Model& model, Topology topology, std::int64_t world_size);

  Topology topology() const noexcept { return topology_; }
  std::int64_t world_size() const noexcept { return world_size_; }

  /// The shards of `rank` in the model's order, empty ones included, tied parameters left out.
  std::vector<LocalShard> local_shards(std::int64_t rank) const;

  /// Elements that `rank` owns, padding not counted.
  std::int64_t local_numel(std::int64_t rank) const;

 private:
  struct Rows {
    std::size_t parameter;
    std::int64_t rows;   ///< size of dimension 0
    std::int64_t width;  ///< elements a row
  };

  ShardPlan(Topology topology, std::int64_t world_size, std::vector<Rows> parameters);
  LocalShard local_shard(const Rows& parameter, std::int64_t rank) const;
  void check_rank(std::int64_t rank) const;

  Topology topology_;
  std::int64_t world_size_;
  std::vector<Rows> parameters_;
};

}  // namespace stepscope::topologies
