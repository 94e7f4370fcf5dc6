#include "topologies/plan_summary.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/core/error_text.h"
#include "tests/topologies/plan_cases.h"
#include "topologies/load_model.h"

namespace stepscope::topologies {
namespace {

Model model_of(std::vector<std::int64_t> shape) {
  return {.name = "m", .parameters = {{.name = "w", .shape = std::move(shape)}}};
}

std::int64_t extent_of(const PlanSummary& summary, std::string_view name,
                       std::int64_t PlanExtent::* field) {
  for (std::size_t i = 0; i < plan_columns().size(); ++i) {
    if (plan_columns()[i].name == name) return summary.extents()[i].*field;
  }
  throw Error("no such column");
}

std::vector<std::int64_t> values_of(const PlannedBytes& bytes) {
  std::vector<std::int64_t> values;
  for (const PlanColumn& column : plan_columns()) values.push_back(column.value(bytes));
  return values;
}

// The sweep against one call of planned_bytes a rank.
TEST(PlanSummary, EqualsTheSumOverAllRanks) {
  std::mt19937 random(20'240'607);
  std::set<Topology> seen;
  for (int trial = 0; trial < 400; ++trial) {
    const PlanCase test = random_plan_case(random, trial % 4 == 0 ? 1200 : 40);
    const ShardPlan plan = ShardPlan::make(test.model, test.options);
    seen.insert(plan.topology());
    for (const Optimizer optimizer : all_optimizers()) {
      const StateOptions options{
          .optimizer = optimizer,
          .dtype = {},
          .policy = all_state_policies()[static_cast<std::size_t>(trial % 3)],
          .min_8bit_size = trial % 5 == 0 ? 0 : 300};
      const PlanSummary summary(test.model, plan, options);
      const std::vector<PlanExtent> extents = summary.extents();
      std::vector<PlanExtent> expected(extents.size(), {.min = INT64_MAX});
      std::int64_t next = 0;
      summary.for_each_rank([&](std::int64_t rank, const PlannedBytes& bytes) {
        ASSERT_EQ(rank, next++);
        const auto values = values_of(planned_bytes(test.model, plan, rank, options));
        ASSERT_EQ(values_of(bytes), values) << test.text() << " rank " << rank;
        for (std::size_t i = 0; i < values.size(); ++i) {
          expected[i].min = std::min(expected[i].min, values[i]);
          expected[i].max = std::max(expected[i].max, values[i]);
          expected[i].total += values[i];
        }
      });
      ASSERT_EQ(next, plan.world_size());
      for (std::size_t i = 0; i < extents.size(); ++i) {
        const std::string where = test.text() + " " + std::string(plan_columns()[i].name);
        ASSERT_EQ(extents[i].min, expected[i].min) << where;
        ASSERT_EQ(extents[i].max, expected[i].max) << where;
        ASSERT_EQ(extents[i].total, expected[i].total) << where;
        if (extents[i].total > 0) {
          const double mean = static_cast<double>(extents[i].total) / static_cast<double>(next);
          ASSERT_DOUBLE_EQ(extents[i].imbalance, static_cast<double>(extents[i].max) / mean);
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), all_topologies().size());
}

// Under `original` every block of every stepped parameter with 8-bit state is looked at, one
// element at a time.
TEST(PlannedBytesOriginal, EqualsTheDefinitionElementByElement) {
  std::mt19937 random(99);
  std::int64_t cut_blocks = 0;
  for (int trial = 0; trial < 150; ++trial) {
    const PlanCase test = random_plan_case(random, trial % 3 == 0 ? 300 : 12);
    const ShardPlan plan = ShardPlan::make(test.model, test.options);
    const StateOptions options{.optimizer = Optimizer::Lion8bit,
                               .dtype = {},
                               .policy = StatePolicy::original,
                               .min_8bit_size = 300};
    const auto owners = owners_by_element(test.model, test.options);
    std::set<std::size_t> stepped;
    for (std::size_t unit = 0; unit < plan.unit_count(); ++unit) {
      bool any = false;
      for (const std::size_t i : plan.parameters(unit)) any |= is_stepped(test.model.parameters[i]);
      if (any) stepped.insert(plan.parameters(unit).begin(), plan.parameters(unit).end());
    }
    std::map<std::int64_t, PlannedBytes> expected;
    for (const std::size_t i : stepped) {
      const std::int64_t size = numel(test.model.parameters[i]);
      const std::int64_t element_bytes = kernels::element_bytes(test.model.parameters[i].dtype);
      const bool is_8bit = size >= 300;
      for (std::int64_t begin = 0; begin < size; begin += 256) {
        const std::int64_t end = std::min(begin + 256, size);
        std::map<std::int64_t, std::int64_t> parts;
        for (std::int64_t e = begin; e < end; ++e) ++parts[owners[i][static_cast<std::size_t>(e)]];
        const auto sharers = static_cast<std::int64_t>(parts.size());
        for (const auto& [shard, mine] : parts) {
          PlannedBytes& bytes = expected[shard];
          bytes.moment += is_8bit ? end - begin + 4 : 4 * mine;
          bytes.numel_8bit += is_8bit ? mine : 0;
          if (!is_8bit || sharers == 1) continue;
          ++bytes.cut_blocks;
          bytes.foreign_numel += end - begin - mine;
          bytes.border_traffic += mine * element_bytes * (sharers - 1);
        }
      }
    }
    for (std::int64_t rank = 0; rank < plan.world_size(); ++rank) {
      const PlannedBytes bytes = planned_bytes(test.model, plan, rank, options);
      const PlannedBytes& wanted = expected[rank % plan.shards()];
      ASSERT_EQ(bytes.moment, wanted.moment) << test.text() << " rank " << rank;
      ASSERT_EQ(bytes.numel_8bit, wanted.numel_8bit) << test.text();
      ASSERT_EQ(bytes.cut_blocks, wanted.cut_blocks) << test.text();
      ASSERT_EQ(bytes.foreign_numel, wanted.foreign_numel) << test.text();
      ASSERT_EQ(bytes.border_traffic, wanted.border_traffic) << test.text();
      cut_blocks += bytes.cut_blocks;
    }
  }
  EXPECT_GT(cut_blocks, 1000) << "the cases do not test what they should";
}

TEST(PlanSummary, CountsOneStateForTwoLayoutsOfOneModelOnlyWhereThePolicySaysSo) {
  // 6144 elements replicated or halved: bitsandbytes on what it is handed keeps uint8 state and 24
  // scales in one layout and FP32 state in the other.
  const Model model = model_of({6, 1024});
  for (const StatePolicy policy : all_state_policies()) {
    const auto summary_of = [&](std::int64_t replicas) {
      const ShardPlan plan = ShardPlan::make(
          model, {.topology = Topology::hsdp, .world_size = 2, .replicas = replicas});
      return PlanSummary(model, plan, {.optimizer = Optimizer::AdamW8bit, .policy = policy})
          .extents();
    };
    const PlanExtent replicated = summary_of(2)[5];
    const PlanExtent sharded = summary_of(1)[5];
    ASSERT_EQ(plan_columns()[5].name, "state_bytes");
    EXPECT_EQ(replicated.max, 2 * (6144 + 4 * 24) + 2048);
    EXPECT_EQ(sharded.max, policy == StatePolicy::local ? 3072 * 8 : 2 * (3072 + 4 * 12) + 2048);
    EXPECT_EQ(sharded.min, sharded.max);
  }
}

TEST(PlanSummary, LooksAtEveryRankOfUnevenAndEmptyShards) {
  const Model uneven = model_of({1601, 1280});
  const ShardPlan plan = ShardPlan::make(uneven, Topology::fsdp2, 4);
  const PlanSummary summary(uneven, plan, {.optimizer = Optimizer::AdamW8bit});
  EXPECT_EQ(extent_of(summary, "local_numel", &PlanExtent::min), 509'440);
  EXPECT_EQ(extent_of(summary, "local_numel", &PlanExtent::max), 513'280);
  EXPECT_EQ(extent_of(summary, "local_numel", &PlanExtent::total), 2'049'280);
  // 8005 scales a moment, never 8020.
  EXPECT_EQ(extent_of(summary, "state_bytes", &PlanExtent::total),
            2 * (2'049'280 + 4 * 8005) + 4 * 2048);
  const Model empty = model_of({18, 64});
  const ShardPlan eight = ShardPlan::make(empty, Topology::fsdp2, 8);
  const PlanSummary tails(empty, eight, {.optimizer = Optimizer::AdamW});
  EXPECT_EQ(extent_of(tails, "empty_shards", &PlanExtent::total), 2);
  EXPECT_EQ(extent_of(tails, "state_bytes", &PlanExtent::min), 0);
}

TEST(PlanSummary, KeepsTheUnitsOfAModelApartOnlyWhereShapesDiffer) {
  const Model model = load_model("llama-3.1-405b");
  const ShardPlan plan = ShardPlan::make(model, Topology::fsdp2, 1 << 20);
  const PlanSummary summary(model, plan, {.optimizer = Optimizer::AdamW8bit});
  EXPECT_EQ(summary.distinct_units(), 6U);
  EXPECT_EQ(extent_of(summary, "local_numel", &PlanExtent::total), 405'853'388'800);
}

TEST(PlanSummary, CountsInSixtyFourBitsOrRefuses) {
  const Model large = load_model(STEPSCOPE_TEST_DATA "/models/large.json");
  const ShardPlan two = ShardPlan::make(large, Topology::fsdp2, 2);
  const PlanSummary summary(large, two, {.optimizer = Optimizer::Lion8bit});
  EXPECT_EQ(extent_of(summary, "state_bytes", &PlanExtent::total),
            2'476'250'368 + 4 * (2 * 4'836'427LL) + 2 * 2048);
  const Model model = model_of({kMaxModelNumel});
  const ShardPlan many = ShardPlan::make(model, Topology::ddp, std::int64_t{1} << 20);
  const PlanSummary huge(model, many, {.optimizer = Optimizer::AdamW});
  EXPECT_EQ(error_text([&] { (void)huge.extents(); }),
            "the total of local_numel over all ranks does not fit in 64 bits; plan fewer ranks");
}

}  // namespace
}  // namespace stepscope::topologies
