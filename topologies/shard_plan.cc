#include "topologies/shard_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/printable.h"

namespace stepscope::topologies {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

std::int64_t shards_of(const PlanOptions& options) {
  switch (options.topology) {
    case Topology::single:
    case Topology::ddp:
      return 1;
    case Topology::fsdp2:
    case Topology::fsdp1:
      return options.world_size;
    case Topology::hsdp:
      return options.world_size / options.replicas;
  }
  throw Error("a topology without a rule");
}

void check(const PlanOptions& options) {
  const std::string world = std::to_string(options.world_size);
  if (options.world_size < 1) {
    throw Error("the world size is " + world, "it is at least 1");
  }
  if (options.topology == Topology::single && options.world_size != 1) {
    throw Error("topology single has one rank, not " + world,
                "use topology fsdp2 or ddp, or one rank");
  }
  if (options.topology != Topology::hsdp) return;
  if (options.replicas < 1 || options.world_size % options.replicas != 0) {
    throw Error("topology hsdp cannot split " + world + " ranks into " +
                    std::to_string(options.replicas) + " replicas",
                "the world size is replicas x shards: choose replicas that divide it");
  }
}

}  // namespace

const std::vector<Topology>& all_topologies() {
  static const std::vector<Topology> all = {Topology::single, Topology::ddp, Topology::fsdp2,
                                            Topology::hsdp, Topology::fsdp1};
  return all;
}

std::string_view topology_name(Topology topology) {
  switch (topology) {
    case Topology::single:
      return "single";
    case Topology::ddp:
      return "ddp";
    case Topology::fsdp2:
      return "fsdp2";
    case Topology::hsdp:
      return "hsdp";
    case Topology::fsdp1:
      return "fsdp1";
  }
  throw Error("a topology without a name");
}

Topology parse_topology(std::string_view name) {
  for (const Topology topology : all_topologies()) {
    if (name == topology_name(topology)) return topology;
  }
  throw Error("unknown topology " + printable(name), "use single, ddp, fsdp2, hsdp or fsdp1");
}

ShardPlan::ShardPlan(PlanOptions options, std::int64_t shards)
    : options_(std::move(options)), shards_(shards) {}

ShardPlan ShardPlan::make(const Model& model, const PlanOptions& options) {
  validate(model);
  check(options);
  ShardPlan plan(options, shards_of(options));
  plan.places_.resize(model.parameters.size());
  if (options.topology == Topology::fsdp1) {
    for (auto& unit : wrap(model, options.wrapping)) plan.add_unit(model, std::move(unit));
    return plan;
  }
  const bool cuts = options.topology == Topology::fsdp2 || options.topology == Topology::hsdp;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = model.parameters[i];
    if (!parameter.tied_to.empty()) continue;
    if (parameter.shape.empty() && cuts) {
      throw Error("it is a scalar (shape ()), which " +
                      std::string(topology_name(options.topology)) + " cannot shard",
                  "give it shape (1,), or use topology single or ddp",
                  {.parameter = parameter.name});
    }
    plan.add_unit(model, {i});
  }
  return plan;
}

void ShardPlan::add_unit(const Model& model, std::vector<std::size_t> parameters) {
  Unit unit;
  unit.starts.push_back(0);
  bool trainable = true;
  bool has_gradient = false;
  for (const std::size_t i : parameters) {
    const Parameter& parameter = model.parameters[i];
    places_[i] = {.unit = units_.size(), .index = unit.starts.size() - 1};
    unit.starts.push_back(unit.starts.back() + topologies::numel(parameter));
    trainable = trainable && parameter.requires_grad;
    has_gradient = has_gradient || parameter.has_gradient;
  }
  unit.stepped = trainable && has_gradient;
  unit.parameters = std::move(parameters);
  const std::int64_t numel = unit.numel();
  if (options_.topology != Topology::fsdp1) {
    const Parameter& parameter = model.parameters[unit.parameters.front()];
    const std::int64_t rows = parameter.shape.empty() ? 1 : parameter.shape.front();
    unit.width = rows == 0 ? 0 : numel / rows;
    unit.rows = rows;
  } else {
    unit.rows = numel;
  }
  unit.chunk = ceil_div(unit.rows, shards_) * unit.width;
  units_.push_back(std::move(unit));
}

std::int64_t ShardPlan::Unit::first(std::int64_t shard) const {
  // shard * chunk >= numel, without the product that may overflow.
  return chunk == 0 || shard > (numel() - 1) / chunk ? numel() : shard * chunk;
}

std::int64_t ShardPlan::shard_of(std::int64_t rank) const {
  if (rank < 0 || rank >= world_size()) {
    throw Error("there is no rank " + std::to_string(rank),
                "ranks are 0 to " + std::to_string(world_size() - 1));
  }
  return rank % shards_;
}

std::vector<std::vector<std::size_t>> ShardPlan::units() const {
  std::vector<std::vector<std::size_t>> units;
  units.reserve(units_.size());
  for (const Unit& unit : units_) units.push_back(unit.parameters);
  return units;
}

LocalTensor ShardPlan::local_tensor(std::size_t index, std::int64_t shard) const {
  const Unit& unit = units_.at(index);
  const std::int64_t first = unit.first(shard);
  const std::int64_t end = std::min(unit.numel() - first, unit.chunk) + first;
  LocalTensor tensor{
      .unit = index,
      .numel = options_.topology == Topology::fsdp1 ? unit.chunk : end - first,
      .padded_numel = unit.chunk,
      .global_numel = unit.numel(),
      .stepped = unit.stepped,
      .ranges = {},
  };
  // The first parameter that ends after `first`.
  const auto after = std::upper_bound(unit.starts.begin() + 1, unit.starts.end(), first);
  for (auto i = static_cast<std::size_t>(after - unit.starts.begin()) - 1;
       i < unit.parameters.size() && unit.starts[i] < end; ++i) {
    const std::int64_t low = std::max(first, unit.starts[i]);
    const std::int64_t high = std::min(end, unit.starts[i + 1]);
    if (low == high) continue;  // a parameter without elements
    tensor.ranges.push_back({.parameter = unit.parameters[i],
                             .offset = low - unit.starts[i],
                             .numel = high - low,
                             .position = low - first});
  }
  return tensor;
}

std::vector<LocalTensor> ShardPlan::local_tensors(std::int64_t rank) const {
  const std::int64_t shard = shard_of(rank);
  std::vector<LocalTensor> tensors;
  tensors.reserve(units_.size());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    tensors.push_back(local_tensor(unit, shard));
  }
  return tensors;
}

std::vector<Owner> ShardPlan::owners(std::size_t parameter, std::int64_t offset,
                                     std::int64_t numel) const {
  const Place place = places_.at(parameter);
  if (place.unit == kNowhere) {
    throw Error("parameter " + std::to_string(parameter) + " is tied and has no shard",
                "ask for the parameter that it is tied to");
  }
  const Unit& unit = units_[place.unit];
  const std::int64_t start = unit.starts[place.index];
  const std::int64_t size = unit.starts[place.index + 1] - start;
  if (offset < 0 || numel < 0 || offset > size || numel > size - offset) {
    throw Error("parameter " + std::to_string(parameter) + " has " + std::to_string(size) +
                " elements, not [" + std::to_string(offset) + ", " + std::to_string(offset) +
                " + " + std::to_string(numel) + ")");
  }
  std::vector<Owner> owners;
  while (numel > 0) {
    const std::int64_t shard = (start + offset) / unit.chunk;
    const std::int64_t left = (shard + 1) * unit.chunk - (start + offset);
    const std::int64_t mine = std::min(numel, left);
    owners.push_back({.shard = shard, .offset = offset, .numel = mine});
    offset += mine;
    numel -= mine;
  }
  return owners;
}

std::vector<LocalShard> ShardPlan::local_shards(std::int64_t rank) const {
  if (options_.topology == Topology::fsdp1) {
    throw Error("under fsdp1 a shard is of a flat unit, not of a parameter");
  }
  const std::int64_t shard = shard_of(rank);
  std::vector<LocalShard> shards;
  shards.reserve(units_.size());
  for (const Unit& unit : units_) {
    const std::int64_t chunk = ceil_div(unit.rows, shards_);
    const bool is_empty = chunk == 0 || shard > (unit.rows - 1) / chunk;
    const std::int64_t first = is_empty ? unit.rows : shard * chunk;
    const std::int64_t rows = std::min(chunk, unit.rows - first);
    shards.push_back({.parameter = unit.parameters.front(),
                      .row_offset = first,
                      .rows = rows,
                      .offset = first * unit.width,
                      .numel = rows * unit.width,
                      .padded_numel = unit.chunk});
  }
  return shards;
}

std::int64_t ShardPlan::local_numel(std::int64_t rank) const {
  const std::int64_t shard = shard_of(rank);
  std::int64_t sum = 0;
  for (const Unit& unit : units_) sum += std::min(unit.numel() - unit.first(shard), unit.chunk);
  return sum;
}

}  // namespace stepscope::topologies
