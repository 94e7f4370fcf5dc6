#include "topologies/unit_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/topologies/thread_world.h"

namespace stepscope::topologies {
namespace {

using Units = std::vector<std::vector<std::size_t>>;

Model awkward_model() {
  return {.name = "awkward",
          .parameters = {{.name = "a.x", .shape = {33, 257}},
                         {.name = "a.y", .shape = {7, 5}},
                         {.name = "b.x", .shape = {3}},
                         {.name = "b.none", .shape = {5, 0}},
                         {.name = "b.y", .shape = {1, 50}}}};
}

PlanOptions layout(Topology topology, std::int64_t ranks, std::int64_t replicas = 1) {
  return {.topology = topology, .world_size = ranks, .replicas = replicas};
}

const std::vector<PlanOptions>& layouts() {
  static const std::vector<PlanOptions> all = {
      layout(Topology::single, 1),  layout(Topology::ddp, 2),     layout(Topology::ddp, 3),
      layout(Topology::fsdp2, 1),   layout(Topology::fsdp2, 2),   layout(Topology::fsdp2, 4),
      layout(Topology::hsdp, 4, 2), layout(Topology::hsdp, 2, 2), layout(Topology::hsdp, 2, 1),
      layout(Topology::fsdp1, 3),   layout(Topology::fsdp1, 1)};
  return all;
}

Units modules() { return {{0, 1}, {2, 3, 4}}; }

/// Element `i` of a parameter, different for all, exact in fp32.
float value(std::size_t parameter, std::int64_t i) {
  return static_cast<float>(static_cast<std::int64_t>(parameter) * 10000 + i);
}

/// A rank's local tensors, parameters filled by value(), padding zero.
struct LocalMemory {
  LocalMemory(const ShardPlan& plan, std::int64_t rank) {
    for (const LocalTensor& local : plan.local_tensors(rank)) {
      params.push_back(at::zeros({local.padded_numel}, at::kFloat));
      grads.push_back(at::full({local.padded_numel}, -1, at::kFloat));
      for (const Range& range : local.ranges) {
        for (std::int64_t i = 0; i < range.numel; ++i) {
          params.back().data_ptr<float>()[range.position + i] =
              value(range.parameter, range.offset + i);
        }
      }
      views.push_back({.ranges = local.ranges,
                       .numel = local.numel,
                       .param = params.back().data_ptr(),
                       .grad = local.stepped ? grads.back().data_ptr() : nullptr});
    }
  }
  std::vector<at::Tensor> params, grads;
  std::vector<LocalView> views;
};

std::vector<at::Tensor> whole_tensors(const Model& model, const std::vector<std::size_t>& unit) {
  std::vector<at::Tensor> whole;
  for (const std::size_t p : unit) whole.push_back(at::full(model.parameters[p].shape, -2.0));
  return whole;
}

TEST(UnitExchange, AGatherFillsEveryElementOfTheWholeParametersInEveryTopology) {
  const Model model = awkward_model();
  for (const PlanOptions& options : layouts()) {
    const ShardPlan plan = ShardPlan::make(model, options);
    ThreadWorld(options.world_size).run([&](Communicator& communicator) {
      LocalMemory memory(plan, communicator.rank());
      UnitExchange exchange(model, plan, modules(), kernels::DType::fp32, Device::cpu,
                            communicator);
      for (std::size_t unit = 0; unit < exchange.unit_count(); ++unit) {
        const auto whole = whole_tensors(model, exchange.parameters(unit));
        exchange.gather(unit, memory.views, whole);
        for (std::size_t i = 0; i < whole.size(); ++i) {
          for (std::int64_t e = 0; e < whole[i].numel(); ++e) {
            ASSERT_EQ(whole[i].data_ptr<float>()[e], value(exchange.parameters(unit)[i], e))
                << topology_name(options.topology) << " on " << options.world_size;
          }
        }
      }
    });
  }
}

TEST(UnitExchange, AReductionLeavesTheMeanOfTheRanksWhereTheOptimizerReadsIt) {
  const Model model = awkward_model();
  for (const PlanOptions& options : layouts()) {
    const ShardPlan plan = ShardPlan::make(model, options);
    ThreadWorld(options.world_size).run([&](Communicator& communicator) {
      const std::int64_t rank = communicator.rank();
      LocalMemory memory(plan, rank);
      UnitExchange exchange(model, plan, modules(), kernels::DType::fp32, Device::cpu,
                            communicator);
      for (std::size_t unit = exchange.unit_count(); unit-- > 0;) {
        auto gradients = whole_tensors(model, exchange.parameters(unit));
        for (std::size_t i = 0; i < gradients.size(); ++i) {
          for (std::int64_t e = 0; e < gradients[i].numel(); ++e) {
            // Rank r has (r + 1) times the value: the mean is (W + 1) / 2 times it.
            gradients[i].data_ptr<float>()[e] =
                static_cast<float>(6 * (rank + 1)) * value(exchange.parameters(unit)[i], e);
          }
        }
        exchange.reduce(unit, gradients, memory.views);
      }
      exchange.finish(memory.views);
      const auto factor = static_cast<float>(3 * (options.world_size + 1));
      const bool exact = (options.world_size & (options.world_size - 1)) == 0;
      for (const LocalView& view : memory.views) {
        std::vector<bool> padding(static_cast<std::size_t>(view.numel), true);
        for (const Range& range : view.ranges) {
          for (std::int64_t e = 0; e < range.numel; ++e) {
            const float found = static_cast<float*>(view.grad)[range.position + e];
            const float expected = factor * value(range.parameter, range.offset + e);
            padding[static_cast<std::size_t>(range.position + e)] = false;
            ASSERT_NEAR(found, expected, exact ? 0 : 2e-7 * expected)
                << topology_name(options.topology) << " on " << options.world_size;
          }
        }
        for (std::size_t e = 0; e < padding.size(); ++e) {
          if (padding[e]) {
            ASSERT_EQ(static_cast<float*>(view.grad)[e], 0);
          }
        }
      }
    });
  }
}

/// The collectives of one step in which every unit is gathered and reduced once.
std::vector<CollectiveRecord> records(const Model& model, const PlanOptions& options,
                                      const Units& units) {
  const ShardPlan plan = ShardPlan::make(model, options);
  std::vector<CollectiveRecord> all;
  ThreadWorld(options.world_size).run([&](Communicator& communicator) {
    LocalMemory memory(plan, communicator.rank());
    UnitExchange exchange(model, plan, units, kernels::DType::fp32, Device::cpu, communicator);
    for (std::size_t unit = 0; unit < exchange.unit_count(); ++unit) {
      if (exchange.sharded()) {
        exchange.gather(unit, memory.views, whole_tensors(model, units[unit]));
      }
      exchange.reduce(unit, whole_tensors(model, units[unit]), memory.views);
    }
    exchange.finish(memory.views);
    if (communicator.rank() == 0) all = exchange.take_records();
  });
  return all;
}

std::string text(const std::vector<CollectiveRecord>& records) {
  std::string all;
  for (const CollectiveRecord& record : records) {
    all += std::string(collective_name(record.kind)) + " " + std::to_string(record.numel) + "; ";
  }
  return all;
}

TEST(UnitExchange, OneCollectiveGathersAUnitAndOneReducesIt) {
  // Chunks on two ranks: 17 x 257 + 4 x 5 and 2 + 0 + 50 elements.
  EXPECT_EQ(text(records(awkward_model(), layout(Topology::fsdp2, 2), modules())),
            "all_gather 4389; reduce_scatter 8778; all_gather 52; reduce_scatter 104; ");
  // Flat: (33 x 257 + 7 x 5) / 2 and 53 / 2, both rounded up.
  EXPECT_EQ(text(records(awkward_model(), layout(Topology::fsdp1, 2), modules())),
            "all_gather 4258; reduce_scatter 8516; all_gather 27; reduce_scatter 54; ");
  EXPECT_EQ(text(records(awkward_model(), layout(Topology::hsdp, 4, 2), modules())),
            "all_gather 4389; reduce_scatter 8778; all_reduce 4389; "
            "all_gather 52; reduce_scatter 104; all_reduce 52; ");
}

TEST(UnitExchange, RanksThatAreAloneMakeNoCollective) {
  for (const Topology topology :
       {Topology::single, Topology::ddp, Topology::fsdp2, Topology::hsdp, Topology::fsdp1}) {
    EXPECT_EQ(text(records(awkward_model(), layout(topology, 1), modules())), "");
  }
}

TEST(UnitExchange, DdpReducesInBucketsOfOneAndThenTwentyFiveMebibytes) {
  const std::int64_t mib = 1 << 18;  // elements of fp32
  const Model model = {.name = "large",
                       .parameters = {{.name = "a", .shape = {3 * mib}},
                                      {.name = "b", .shape = {24 * mib}},
                                      {.name = "c", .shape = {mib - 1}},
                                      {.name = "d", .shape = {mib / 2}}}};
  // From the end: d and c pass 1 MiB; b and a pass 25 MiB.
  EXPECT_EQ(text(records(model, layout(Topology::ddp, 2), {{3}, {2}, {1}, {0}})),
            "all_reduce " + std::to_string(mib - 1 + mib / 2) + "; all_reduce " +
                std::to_string(27 * mib) + "; ");
}

TEST(UnitExchange, FrozenParametersAreGatheredAndNotReduced) {
  Model model = awkward_model();
  model.parameters[1].requires_grad = false;
  EXPECT_EQ(text(records(model, layout(Topology::fsdp2, 2), modules())),
            "all_gather 4389; reduce_scatter 8738; all_gather 52; reduce_scatter 104; ");
}

void expect_refusal(const Model& model, const Units& units, const std::string& word) {
  const ShardPlan plan = ShardPlan::make(model, layout(Topology::fsdp2, 1));
  ThreadWorld(1).run([&](Communicator& communicator) {
    const std::string found = error_text(
        [&] { UnitExchange(model, plan, units, kernels::DType::fp32, Device::cpu, communicator); });
    EXPECT_NE(found.find(word), std::string::npos) << found;
  });
}

TEST(UnitExchange, EveryParameterIsInOneUnit) {
  Model model = awkward_model();
  expect_refusal(model, {{0, 1}, {2, 3}}, "parameter b.y");
  expect_refusal(model, {{0, 1}, {1, 2, 3, 4}}, "parameter a.y");
  model.parameters.push_back({.name = "tied", .shape = {1, 50}, .tied_to = "b.y"});
  expect_refusal(model, {{0, 1}, {2, 3, 4, 5}}, "parameter tied");
}

TEST(UnitExchange, AStepWithoutAllUnitsIsRefused) {
  const Model model = awkward_model();
  const ShardPlan plan = ShardPlan::make(model, layout(Topology::fsdp2, 1));
  ThreadWorld(1).run([&](Communicator& communicator) {
    LocalMemory memory(plan, 0);
    UnitExchange exchange(model, plan, modules(), kernels::DType::fp32, Device::cpu, communicator);
    exchange.reduce(0, whole_tensors(model, modules()[0]), memory.views);
    EXPECT_THROW(exchange.finish(memory.views), Error);
  });
}

}  // namespace
}  // namespace stepscope::topologies
