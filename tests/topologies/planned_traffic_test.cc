// What is planned for a training step against what its ranks hand to Gloo: the gathers and
// reductions of units, and the exchange of cut blocks within the optimizer's step.

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "awkward_cases.h"
#include "counting_communicator.h"
#include "forked_ranks.h"
#include "topologies/planned_bytes.h"
#include "topologies/torch_types.h"
#include "topologies/unit_exchange.h"
#include "topologies/unit_traffic.h"

namespace stepscope::topologies {
namespace {

using kernels::DType;
using Units = std::vector<std::vector<std::size_t>>;

/// A layout and what a training step gathers at once there, PyTorch's choice (training.md).
struct Layout {
  PlanOptions options;
  Units units;
  bool root = true;  ///< the first unit is gathered once, every other twice
};

/// Two numbered blocks and a root. Shards begin and end inside blocks of 256 elements, which up to
/// four ranks share; one parameter has no elements, one is frozen where that is possible.
Model network(DType dtype, Topology topology) {
  Model model{.name = "network",
              .parameters = {{.name = "embed", .shape = {21, 33}},
                             {.name = "scale", .shape = {19}},
                             {.name = "h.0.a", .shape = {33, 257}},
                             {.name = "h.0.b", .shape = {4097}},
                             {.name = "h.0.none", .shape = {5, 0}},
                             {.name = "h.1.a", .shape = {7, 700}},
                             {.name = "h.1.thin", .shape = {600}},
                             {.name = "h.1.frozen", .shape = {7, 500}}}};
  for (Parameter& parameter : model.parameters) parameter.dtype = dtype;
  if (topology == Topology::fsdp1) {
    // PyTorch flattens neither a unit without elements nor one that is frozen in part.
    model.parameters[4].shape = {5, 1};
  } else {
    model.parameters.back().requires_grad = false;
  }
  return model;
}

std::vector<Layout> layouts(std::int64_t ranks) {
  const Units modules = {{0, 1}, {2, 3, 4}, {5, 6, 7}};
  std::vector<Layout> all;
  const auto add = [&](Topology topology, std::int64_t replicas = 1) {
    all.push_back({.options = {.topology = topology, .world_size = ranks, .replicas = replicas},
                   .units = modules});
  };
  if (ranks == 1) add(Topology::single);
  add(Topology::ddp);
  add(Topology::fsdp2);
  for (std::int64_t replicas = 1; replicas <= ranks; ++replicas) {
    if (ranks % replicas == 0) add(Topology::hsdp, replicas);
  }
  const auto flat = [&](Wrapping wrapping, Units units, bool root) {
    all.push_back({.options = {.topology = Topology::fsdp1,
                               .world_size = ranks,
                               .wrapping = std::move(wrapping)},
                   .units = std::move(units),
                   .root = root});
  };
  // Of one unit a parameter two span the model, so that neither is taken for its root.
  flat({.policy = WrapPolicy::per_parameter, .units = {}}, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}},
       false);
  flat({.policy = WrapPolicy::per_module, .units = {}}, modules, true);
  flat({.policy = WrapPolicy::whole_model, .units = {}}, {{0, 1, 2, 3, 4, 5, 6, 7}}, true);
  flat({.policy = WrapPolicy::list,
        .units = {{"embed", "h.1.thin"}, {"h.0", "h.1.a", "h.1.frozen"}, {"scale"}}},
       {{0, 6}, {2, 3, 4, 5, 7}, {1}}, false);
  return all;
}

std::vector<at::Tensor> whole_tensors(const Model& model, const std::vector<std::size_t>& unit,
                                      DType dtype) {
  std::vector<at::Tensor> whole;
  for (const std::size_t p : unit) {
    whole.push_back(at::zeros(model.parameters[p].shape, scalar_type(dtype)));
  }
  return whole;
}

/// The collectives of a training step as PyTorch orders them, and the optimizer's step.
void train(const Model& model, const Layout& layout, DType dtype, UnitExchange& exchange,
           ShardedOptimizer& optimizer) {
  const auto views = optimizer.local_views();
  const auto gather = [&](std::size_t unit) {
    if (!exchange.sharded()) return;
    exchange.gather(unit, views, whole_tensors(model, layout.units[unit], dtype));
  };
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) gather(unit);
  for (std::size_t unit = layout.units.size(); unit-- > 0;) {
    if (unit > 0 || !layout.root) gather(unit);
    exchange.reduce(unit, whole_tensors(model, layout.units[unit], dtype), views);
  }
  exchange.finish(views);
  optimizer.step();
}

/// Counts of a step, planned or moved, for comparison and as text.
std::string text(const UnitTraffic& units, std::int64_t exchanges, std::int64_t exchange_bytes) {
  std::string all;
  for (const auto& [name, one] : {std::pair{"all_gather", &units.all_gather},
                                  {"reduce_scatter", &units.reduce_scatter},
                                  {"all_reduce", &units.all_reduce}}) {
    all += std::string(name) + ": " + std::to_string(one->calls) + " calls, " +
           std::to_string(one->bytes) + " bytes";
    if (one->calls > 0) all += " among " + std::to_string(one->ranks);
    all += "; ";
  }
  return all + "all_to_all: " + std::to_string(exchanges) + " calls, " +
         std::to_string(exchange_bytes) + " bytes";
}

struct Totals {
  std::int64_t steps = 0;
  std::int64_t exchanged = 0;  ///< bytes
};

/// Takes two steps of every optimizer and policy and compares each with the plan.
bool moves_what_was_planned(Communicator& gloo, const Layout& layout, DType dtype, Totals& totals) {
  const Model model = network(dtype, layout.options.topology);
  const ShardPlan plan = ShardPlan::make(model, layout.options);
  const UnitTraffic planned_units = plan_unit_traffic(model, plan);
  MovedBytes moved;
  CountingCommunicator counting(gloo, moved);
  UnitExchange exchange(model, plan, layout.units, dtype, Device::cpu, counting);
  bool right = true;
  for (const Optimizer kind : {Optimizer::AdamW8bit, Optimizer::Lion8bit, Optimizer::AdamW}) {
    for (const StatePolicy policy : all_state_policies()) {
      const StepConfig config = awkward_config(kind, dtype, policy);
      const StateOptions options{.optimizer = kind,
                                 .dtype = dtype,
                                 .policy = policy,
                                 .min_8bit_size = config.min_8bit_size};
      std::int64_t cut_blocks = 0;
      std::int64_t to_all = 0;
      for (std::int64_t rank = 0; rank < plan.world_size(); ++rank) {
        const PlannedBytes bytes = planned_bytes(model, plan, rank, options);
        cut_blocks += bytes.cut_blocks;
        to_all += bytes.border_traffic;
      }
      const PlannedBytes mine = planned_bytes(model, plan, gloo.rank(), options);
      const auto planned = text(planned_units, cut_blocks > 0 ? 1 : 0, mine.border_traffic);
      const auto optimizer = make_sharded_optimizer(model, plan, config, 1, counting);
      optimizer->restart();
      for (int step = 0; step < 2; ++step) {
        moved = {};
        train(model, layout, dtype, exchange, *optimizer);
        const auto found = text(moved.units, moved.exchanges, moved.exchange_bytes);
        const std::int64_t others = moved.others;
        // What one rank sends another receives.
        const auto received = gloo.all_gather(std::span(&moved.received_bytes, 1));
        std::int64_t from_all = 0;
        for (const std::int64_t bytes : received) from_all += bytes;
        if (found != planned || others != 0 || from_all != to_all) {
          std::fprintf(stderr,
                       "rank %d of %d, %s, %d replicas, %s, %s, %s:\n  planned %s\n  moved   %s\n"
                       "  and %d calls of other kinds; all sent %d, all received %d\n",
                       static_cast<int>(gloo.rank()), static_cast<int>(gloo.world_size()),
                       std::string(topology_name(plan.topology())).c_str(),
                       static_cast<int>(plan.replicas()),
                       std::string(wrap_policy_name(layout.options.wrapping.policy)).c_str(),
                       std::string(optimizer_name(kind)).c_str(),
                       std::string(state_policy_name(policy)).c_str(), planned.c_str(),
                       found.c_str(), static_cast<int>(others), static_cast<int>(to_all),
                       static_cast<int>(from_all));
          right = false;
        }
        ++totals.steps;
        totals.exchanged += moved.exchange_bytes;
      }
    }
  }
  return right;
}

class PlannedTraffic : public testing::TestWithParam<std::int64_t> {};

TEST_P(PlannedTraffic, IsWhatEveryRankHandsToGlooInATrainingStepOfEveryTopologyAndPolicy) {
  const std::int64_t ranks = GetParam();
  EXPECT_TRUE(on_ranks(ranks, [&](Communicator& gloo) {
    Totals totals;
    bool right = true;
    for (const Layout& layout : layouts(ranks)) {
      for (const DType dtype : {DType::fp32, DType::bf16}) {
        right = moves_what_was_planned(gloo, layout, dtype, totals) && right;
      }
    }
    // Every shape is there so that something is exchanged wherever there are shards.
    return right && totals.steps > 0 && (totals.exchanged > 0) == (ranks > 1);
  }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, PlannedTraffic, testing::Values(1, 2, 3, 4),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

}  // namespace
}  // namespace stepscope::topologies
