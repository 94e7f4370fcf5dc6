#pragma once

/// Purpose: random models and plans for tests, and who owns each element by the definition of each
/// topology, one element at a time.
///
/// Usage:
///     std::mt19937 random(7);
///     const PlanCase test = random_plan_case(random, 8);
///     const auto owners = owners_by_element(test.model, test.options);

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "topologies/shard_plan.h"

namespace stepscope::topologies {

struct PlanCase {
  Model model;
  PlanOptions options;

  std::string text() const {
    std::string words = std::string(topology_name(options.topology)) + " W " +
                        std::to_string(options.world_size) + " replicas " +
                        std::to_string(options.replicas) + " " +
                        std::string(wrap_policy_name(options.wrapping.policy));
    for (const Parameter& parameter : model.parameters) {
      words += " " + parameter.name + "[";
      for (const std::int64_t size : parameter.shape) words += std::to_string(size) + ",";
      words += "]";
    }
    return words;
  }
};

/// A topology, at most `max_ranks` ranks, and up to eight parameters of up to 20,000 elements, with
/// frozen, tied, empty and gradient-less ones among them, and sizes around those of a block.
inline PlanCase random_plan_case(std::mt19937& random, std::int64_t max_ranks) {
  const auto upto = [&](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n)(random);
  };
  PlanCase made{.model = {.name = "random", .parameters = {}}, .options = {}};
  PlanOptions& options = made.options;
  options.topology = all_topologies()[static_cast<std::size_t>(upto(4))];
  options.wrapping.policy = static_cast<WrapPolicy>(upto(2));
  options.world_size = options.topology == Topology::single ? 1 : 1 + upto(max_ranks - 1);
  if (options.topology == Topology::hsdp) {
    options.replicas = 1 + upto(2);
    options.world_size = std::max<std::int64_t>(1, options.world_size / options.replicas);
    options.world_size *= options.replicas;
  }
  const bool flat = options.topology == Topology::fsdp1;
  const std::int64_t sizes[] = {0,   1,   2,   3,    7,    16,   64,   255,  256,   257,
                                300, 511, 512, 1000, 4095, 4096, 4097, 8193, 20'000};
  const std::int64_t count = 1 + upto(7);
  for (std::int64_t i = 0; i < count; ++i) {
    Parameter parameter;
    parameter.name = "m" + std::to_string(upto(3)) + ".p" + std::to_string(i);
    if (i > 0 && upto(3) == 0) {
      parameter.shape = made.model.parameters[static_cast<std::size_t>(upto(i - 1))].shape;
    } else if (upto(1) == 0) {
      parameter.shape = {sizes[upto(18)]};
    } else {
      parameter.shape = {upto(40), sizes[upto(12)]};
    }
    // A flat unit needs an element: its only parameter must not be empty.
    const bool alone = options.wrapping.policy != WrapPolicy::whole_model || i == 0;
    if (flat && alone && numel(parameter) == 0) parameter.shape = {3};
    parameter.has_gradient = upto(7) != 0;
    if (!flat) {
      parameter.requires_grad = upto(7) != 0;
      parameter.dtype = static_cast<kernels::DType>(upto(2));
    }
    made.model.parameters.push_back(parameter);
  }
  if (upto(3) == 0) {
    Parameter tied = made.model.parameters.front();
    tied.name = "tied";
    tied.tied_to = made.model.parameters.front().name;
    made.model.parameters.push_back(tied);
  }
  return made;
}

/// For every parameter and element the shard that owns it; empty for tied parameters.
inline std::vector<std::vector<std::int64_t>> owners_by_element(const Model& model,
                                                                const PlanOptions& options) {
  std::vector<std::vector<std::int64_t>> owners(model.parameters.size());
  const std::int64_t shards =
      options.topology == Topology::single || options.topology == Topology::ddp
          ? 1
          : options.world_size / (options.topology == Topology::hsdp ? options.replicas : 1);
  if (options.topology == Topology::fsdp1) {
    for (const auto& unit : wrap(model, options.wrapping)) {
      std::int64_t total = 0;
      for (const std::size_t i : unit) total += numel(model.parameters[i]);
      const std::int64_t chunk = (total + shards - 1) / shards;
      std::int64_t place = 0;
      for (const std::size_t i : unit) {
        for (std::int64_t e = 0; e < numel(model.parameters[i]); ++e) {
          owners[i].push_back(place++ / chunk);
        }
      }
    }
    return owners;
  }
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = model.parameters[i];
    if (!parameter.tied_to.empty() || numel(parameter) == 0) continue;
    const std::int64_t rows = parameter.shape.empty() ? 1 : parameter.shape.front();
    const std::int64_t width = numel(parameter) / rows;
    const std::int64_t chunk = (rows + shards - 1) / shards;
    for (std::int64_t e = 0; e < numel(parameter); ++e) {
      owners[i].push_back(e / width / chunk);
    }
  }
  return owners;
}

}  // namespace stepscope::topologies
