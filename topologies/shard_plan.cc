#include "topologies/shard_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "topologies/printable.h"

namespace stepscope::topologies {

std::string_view topology_name(Topology topology) {
  switch (topology) {
    case Topology::single:
      return "single";
    case Topology::fsdp2:
      return "fsdp2";
  }
  throw Error("a topology without a name");
}

Topology parse_topology(std::string_view name) {
  for (const Topology topology : {Topology::single, Topology::fsdp2}) {
    if (name == topology_name(topology)) return topology;
  }
  throw Error("unknown topology " + printable(name), "use single or fsdp2");
}

ShardPlan::ShardPlan(Topology topology, std::int64_t world_size, std::vector<Rows> parameters)
    : topology_(topology), world_size_(world_size), parameters_(std::move(parameters)) {}

ShardPlan ShardPlan::make(const Model& model, Topology topology, std::int64_t world_size) {
  validate(model);
  if (world_size < 1) {
    throw Error("the world size is " + std::to_string(world_size), "it is at least 1");
  }
  if (topology == Topology::single && world_size != 1) {
    throw Error("topology single has one rank, not " + std::to_string(world_size),
                "use topology fsdp2, or one rank");
  }
  std::vector<Rows> parameters;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = model.parameters[i];
    if (!parameter.tied_to.empty()) continue;
    if (parameter.shape.empty() && topology == Topology::fsdp2) {
      throw Error("it is a scalar (shape ()), which fsdp2 cannot shard",
                  "give it shape (1,), or use topology single", {.parameter = parameter.name});
    }
    const std::int64_t rows = parameter.shape.empty() ? 1 : parameter.shape.front();
    parameters.push_back(
        {.parameter = i, .rows = rows, .width = rows == 0 ? 0 : numel(parameter) / rows});
  }
  return ShardPlan(topology, world_size, std::move(parameters));
}

void ShardPlan::check_rank(std::int64_t rank) const {
  if (rank < 0 || rank >= world_size_) {
    throw Error("there is no rank " + std::to_string(rank),
                "ranks are 0 to " + std::to_string(world_size_ - 1));
  }
}

// torch.chunk along dimension 0: ceil(rows / world size) rows a rank, until none are left. FSDP2
// pads the storage of every rank to that size (padded_sharded_param_size in _fsdp_param.py).
LocalShard ShardPlan::local_shard(const Rows& parameter, std::int64_t rank) const {
  const std::int64_t chunk =
      parameter.rows / world_size_ + (parameter.rows % world_size_ != 0 ? 1 : 0);
  // rank * chunk >= rows, without the product that may overflow.
  const bool is_empty = chunk == 0 || rank > (parameter.rows - 1) / chunk;
  const std::int64_t first = is_empty ? parameter.rows : rank * chunk;
  const std::int64_t rows = std::min(chunk, parameter.rows - first);
  return {.parameter = parameter.parameter,
          .row_offset = first,
          .rows = rows,
          .offset = first * parameter.width,
          .numel = rows * parameter.width,
          .padded_numel = chunk * parameter.width};
}

std::vector<LocalShard> ShardPlan::local_shards(std::int64_t rank) const {
  check_rank(rank);
  std::vector<LocalShard> shards;
  shards.reserve(parameters_.size());
  for (const Rows& parameter : parameters_) shards.push_back(local_shard(parameter, rank));
  return shards;
}

std::int64_t ShardPlan::local_numel(std::int64_t rank) const {
  check_rank(rank);
  std::int64_t sum = 0;
  for (const Rows& parameter : parameters_) sum += local_shard(parameter, rank).numel;
  return sum;
}

}  // namespace stepscope::topologies
