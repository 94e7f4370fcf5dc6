#include "topologies/shard_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/core/error_text.h"
#include "tests/topologies/plan_cases.h"
#include "topologies/load_model.h"
#include "topologies/presets.h"

namespace stepscope::topologies {
namespace {

Model model_of(std::vector<std::int64_t> shape) {
  return {.name = "m", .parameters = {{.name = "w", .shape = std::move(shape)}}};
}

ShardPlan fsdp2(const Model& model, std::int64_t world_size) {
  return ShardPlan::make(model, Topology::fsdp2, world_size);
}

std::vector<std::int64_t> rows_of(std::vector<std::int64_t> shape, std::int64_t world_size) {
  const ShardPlan plan = fsdp2(model_of(std::move(shape)), world_size);
  std::vector<std::int64_t> rows;
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    rows.push_back(plan.local_shards(rank).at(0).rows);
  }
  return rows;
}

using Rows = std::vector<std::int64_t>;

TEST(ShardPlanFsdp2, ChunksRowsAsTorchChunkDoes) {
  EXPECT_EQ(rows_of({257}, 1), (Rows{257}));
  EXPECT_EQ(rows_of({257}, 2), (Rows{129, 128}));
  EXPECT_EQ(rows_of({257}, 4), (Rows{65, 65, 65, 62}));
  EXPECT_EQ(rows_of({3, 1400}, 4), (Rows{1, 1, 1, 0}));
  EXPECT_EQ(rows_of({5, 1000}, 4), (Rows{2, 2, 1, 0}));
}

// The bug this guards against takes local rows * world size, 1604, for the global rows.
TEST(ShardPlanFsdp2, LeavesTheLastRankFewerRows) {
  const ShardPlan plan = fsdp2(model_of({1601, 1280}), 4);
  EXPECT_EQ(rows_of({1601, 1280}, 4), (Rows{401, 401, 401, 398}));
  std::int64_t sum = 0;
  for (const std::int64_t rank : {0, 1, 2, 3}) {
    EXPECT_EQ(plan.local_numel(rank), rank < 3 ? 513'280 : 509'440);
    EXPECT_EQ(plan.local_shards(rank)[0].padded_numel, 513'280);
    EXPECT_EQ(plan.local_shards(rank)[0].offset, rank * 513'280);
    sum += plan.local_numel(rank);
  }
  EXPECT_EQ(sum, 2'049'280);
}

TEST(ShardPlanFsdp2, ListsEmptyShardsWithoutElements) {
  EXPECT_EQ(rows_of({2, 7}, 8), (Rows{1, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(rows_of({18, 64}, 8), (Rows{3, 3, 3, 3, 3, 3, 0, 0}));
  EXPECT_EQ(rows_of({1, 64}, 2), (Rows{1, 0}));
  const LocalShard empty = fsdp2(model_of({18, 64}), 8).local_shards(7).at(0);
  EXPECT_EQ(empty.row_offset, 18);
  EXPECT_EQ(empty.offset, 18 * 64);
  EXPECT_EQ(empty.numel, 0);
  EXPECT_EQ(empty.padded_numel, 3 * 64);
}

TEST(ShardPlanFsdp2, HandlesParametersWithoutElements) {
  const ShardPlan plan = fsdp2(load_model(STEPSCOPE_TEST_DATA "/models/empty.json"), 2);
  for (const std::int64_t rank : {0, 1}) {
    const std::vector<LocalShard> shards = plan.local_shards(rank);
    ASSERT_EQ(shards.size(), 3U);
    EXPECT_EQ(shards[0].numel, 0);
    EXPECT_EQ(shards[0].padded_numel, 0);
    EXPECT_EQ(shards[1].numel, 0);
    EXPECT_EQ(shards[1].rows, rank == 0 ? 3 : 2);
    EXPECT_EQ(shards[2].numel, 4096);
  }
}

TEST(ShardPlanFsdp2, RefusesAScalarByName) {
  const Model model = load_model(STEPSCOPE_TEST_DATA "/models/scalar.json");
  for (const std::int64_t world_size : {1, 2}) {
    EXPECT_EQ(error_text([&] { fsdp2(model, world_size); }),
              "parameter logit_scale: it is a scalar (shape ()), which fsdp2 cannot shard; give it "
              "shape (1,), or use topology single or ddp");
  }
}

// Were the storage listed twice, its rows would be stepped twice or land in two groups.
TEST(ShardPlanFsdp2, GivesEveryRowOfATiedParameterToOneRankOnce) {
  const Model model = load_model(STEPSCOPE_TEST_DATA "/models/tied.json");
  const ShardPlan plan = fsdp2(model, 2);
  std::vector<int> owners(5, 0);
  for (const std::int64_t rank : {0, 1}) {
    const std::vector<LocalShard> shards = plan.local_shards(rank);
    ASSERT_EQ(shards.size(), 1U);
    EXPECT_EQ(model.parameters[shards[0].parameter].name, "embed.weight");
    EXPECT_EQ(shards[0].rows, rank == 0 ? 3 : 2);
    for (std::int64_t row = 0; row < shards[0].rows; ++row) {
      ++owners.at(static_cast<std::size_t>(shards[0].row_offset + row));
    }
  }
  EXPECT_EQ(owners, std::vector<int>(5, 1));
}

TEST(ShardPlanFsdp2, ShardsFrozenParametersLikeOthers) {
  const ShardPlan plan = fsdp2(load_model(STEPSCOPE_TEST_DATA "/models/frozen.json"), 2);
  ASSERT_EQ(plan.local_shards(1).size(), 3U);
  for (const LocalShard& shard : plan.local_shards(1)) EXPECT_EQ(shard.numel, 4096);
}

TEST(ShardPlanFsdp2, CoversEveryElementOnceWhateverTheWorldSize) {
  for (const char* name : {"tiny", "gpt2", "llama-3.1-405b"}) {
    const Model model = preset(name).value();
    for (const std::int64_t world_size : {1, 2, 3, 5, 8, 48}) {
      const ShardPlan plan = fsdp2(model, world_size);
      std::vector<std::int64_t> next(model.parameters.size(), 0);
      for (std::int64_t rank = 0; rank < world_size; ++rank) {
        for (const LocalShard& shard : plan.local_shards(rank)) {
          const Parameter& parameter = model.parameters[shard.parameter];
          ASSERT_EQ(shard.offset, next[shard.parameter]) << parameter.name << " " << rank;
          ASSERT_EQ(shard.numel, shard.rows * (numel(parameter) / parameter.shape[0]));
          ASSERT_LE(shard.numel, shard.padded_numel);
          next[shard.parameter] += shard.numel;
        }
      }
      for (std::size_t i = 0; i < next.size(); ++i) {
        const Parameter& parameter = model.parameters[i];
        ASSERT_EQ(next[i], parameter.tied_to.empty() ? numel(parameter) : 0) << parameter.name;
      }
    }
  }
}

// A plan of 2^62 ranks is arithmetic like any other: no memory, and no overflow.
TEST(ShardPlanFsdp2, PlansAnyWorldSize) {
  constexpr std::int64_t kRanks = std::int64_t{1} << 62;
  const ShardPlan plan = fsdp2(model_of({1000, 64}), kRanks);
  EXPECT_EQ(plan.local_numel(999), 64);
  EXPECT_EQ(plan.local_numel(1000), 0);
  EXPECT_EQ(plan.local_numel(kRanks - 1), 0);
  const ShardPlan wide = fsdp2(model_of({kMaxModelNumel}), 1'000'003);
  EXPECT_EQ(wide.local_numel(0), kMaxModelNumel / 1'000'003 + 1);
}

TEST(ShardPlanFsdp2, CountsBeyond32Bits) {
  const ShardPlan plan = fsdp2(load_model(STEPSCOPE_TEST_DATA "/models/large.json"), 2);
  EXPECT_EQ(plan.local_numel(0), 1'238'125'184);
  EXPECT_EQ(plan.local_shards(1)[0].offset, 1'238'125'184);
  for (const std::int64_t n : {(1LL << 30) - 1, (1LL << 30) + 1, (1LL << 31) - 1, 1LL << 31}) {
    EXPECT_EQ(ShardPlan::make(model_of({n}), Topology::single, 1).local_numel(0), n);
  }
}

TEST(ShardPlanSingle, GivesEverythingToOneRank) {
  const Model model = load_model(STEPSCOPE_TEST_DATA "/models/scalar.json");
  const ShardPlan plan = ShardPlan::make(model, Topology::single, 1);
  EXPECT_EQ(plan.local_numel(0), 8193);
  const LocalShard scalar = plan.local_shards(0).at(1);
  EXPECT_EQ(scalar.parameter, 1U);
  EXPECT_EQ(scalar.rows, 1);
  EXPECT_EQ(scalar.numel, 1);
  EXPECT_EQ(scalar.padded_numel, 1);
}

TEST(ShardPlanSingle, RefusesMoreThanOneRank) {
  EXPECT_EQ(error_text([] { ShardPlan::make(preset("tiny").value(), Topology::single, 2); }),
            "topology single has one rank, not 2; use topology fsdp2 or ddp, or one rank");
}

TEST(ShardPlanDdp, GivesEverythingToEveryRank) {
  const Model model = load_model(STEPSCOPE_TEST_DATA "/models/scalar.json");
  const ShardPlan plan = ShardPlan::make(model, Topology::ddp, 3);
  EXPECT_EQ(plan.shards(), 1);
  EXPECT_EQ(plan.replicas(), 3);
  for (const std::int64_t rank : {0, 1, 2}) {
    EXPECT_EQ(plan.local_numel(rank), 8193);
    EXPECT_EQ(plan.shard_of(rank), 0);
    EXPECT_EQ(plan.local_tensors(rank).at(1).numel, 1);
  }
}

TEST(ShardPlanHsdp, ShardsWithinEachReplicaAsFsdp2Does) {
  const Model model = preset("tiny").value();
  const ShardPlan hsdp =
      ShardPlan::make(model, {.topology = Topology::hsdp, .world_size = 6, .replicas = 2});
  EXPECT_EQ(hsdp.shards(), 3);
  EXPECT_EQ(hsdp.replicas(), 2);
  const ShardPlan alone = fsdp2(model, 3);
  for (std::int64_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(hsdp.shard_of(rank), rank % 3);
    const auto tensors = hsdp.local_tensors(rank);
    const auto same = alone.local_tensors(rank % 3);
    ASSERT_EQ(tensors.size(), same.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      ASSERT_EQ(tensors[i].numel, same[i].numel);
      ASSERT_EQ(tensors[i].ranges.size(), same[i].ranges.size());
      if (!same[i].ranges.empty()) {
        ASSERT_EQ(tensors[i].ranges[0].offset, same[i].ranges[0].offset);
      }
    }
  }
}

TEST(ShardPlanHsdp, RefusesReplicasThatDoNotDivideTheWorld) {
  const Model model = preset("tiny").value();
  for (const std::int64_t replicas : {0, 3, 5, -2}) {
    EXPECT_EQ(error_text([&] {
                ShardPlan::make(
                    model, {.topology = Topology::hsdp, .world_size = 4, .replicas = replicas});
              }),
              "topology hsdp cannot split 4 ranks into " + std::to_string(replicas) +
                  " replicas; the world size is replicas x shards: choose replicas that divide it");
  }
}

// [3, 5] of the second parameter lie on rank 1, behind the first parameter's tail.
TEST(ShardPlanFsdp1, CutsTheFlatUnitWithItsPadding) {
  Model model{.name = "m",
              .parameters = {{.name = "a.w", .shape = {7}}, {.name = "a.b", .shape = {2, 3}}}};
  const ShardPlan plan = ShardPlan::make(model, {.topology = Topology::fsdp1, .world_size = 3});
  ASSERT_EQ(plan.unit_count(), 1U);
  for (const std::int64_t rank : {0, 1, 2}) {
    const LocalTensor tensor = plan.local_tensors(rank).at(0);
    EXPECT_EQ(tensor.numel, 5);
    EXPECT_EQ(tensor.padded_numel, 5);
    EXPECT_EQ(tensor.global_numel, 13);
  }
  const LocalTensor middle = plan.local_tensors(1).at(0);
  ASSERT_EQ(middle.ranges.size(), 2U);
  EXPECT_EQ(middle.ranges[0].parameter, 0U);
  EXPECT_EQ(middle.ranges[0].offset, 5);
  EXPECT_EQ(middle.ranges[0].numel, 2);
  EXPECT_EQ(middle.ranges[0].position, 0);
  EXPECT_EQ(middle.ranges[1].parameter, 1U);
  EXPECT_EQ(middle.ranges[1].offset, 0);
  EXPECT_EQ(middle.ranges[1].numel, 3);
  EXPECT_EQ(middle.ranges[1].position, 2);
  EXPECT_EQ(plan.local_numel(2), 3);
  EXPECT_EQ(error_text([&] { (void)plan.local_shards(0); }),
            "under fsdp1 a shard is of a flat unit, not of a parameter");
}

// 5 elements on 4 ranks: 2, 2, 1 and one pad, two pads. The last is stepped all the same.
TEST(ShardPlanFsdp1, HandsOutPaddingToRanksThatOwnNothing) {
  const ShardPlan plan =
      ShardPlan::make(model_of({5}), {.topology = Topology::fsdp1, .world_size = 4});
  EXPECT_EQ(plan.local_numel(2), 1);
  EXPECT_EQ(plan.local_numel(3), 0);
  const LocalTensor last = plan.local_tensors(3).at(0);
  EXPECT_EQ(last.numel, 2);
  EXPECT_TRUE(last.stepped);
  EXPECT_TRUE(last.ranges.empty());
}

TEST(ShardPlanFsdp1, StepsAUnitOfWhichAnyParameterHasAGradient) {
  Model model{.name = "m",
              .parameters = {{.name = "a.w", .shape = {8}},
                             {.name = "a.b", .shape = {8}, .has_gradient = false},
                             {.name = "c.w", .shape = {8}, .has_gradient = false},
                             {.name = "d.w", .shape = {8}, .requires_grad = false}}};
  const auto tensors =
      ShardPlan::make(model, {.topology = Topology::fsdp1, .world_size = 2}).local_tensors(0);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_TRUE(tensors[0].stepped);
  EXPECT_FALSE(tensors[1].stepped);
  EXPECT_FALSE(tensors[2].stepped);
}

TEST(ShardPlan, LocalTensorsAndOwnersAreThoseOfTheDefinition) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const PlanCase test = random_plan_case(random, 17);
    const ShardPlan plan = ShardPlan::make(test.model, test.options);
    const auto owners = owners_by_element(test.model, test.options);
    std::vector<std::vector<int>> covered(owners.size());
    for (std::size_t i = 0; i < owners.size(); ++i) covered[i].resize(owners[i].size());
    for (std::int64_t rank = 0; rank < plan.world_size(); ++rank) {
      std::int64_t owned = 0;
      for (const LocalTensor& tensor : plan.local_tensors(rank)) {
        std::int64_t position = 0;
        for (const Range& range : tensor.ranges) {
          ASSERT_EQ(range.position, position) << test.text();
          ASSERT_GT(range.numel, 0) << test.text();
          position += range.numel;
          for (std::int64_t e = range.offset; e < range.offset + range.numel; ++e) {
            const auto element = static_cast<std::size_t>(e);
            ASSERT_EQ(owners[range.parameter].at(element), plan.shard_of(rank)) << test.text();
            ++covered[range.parameter][element];
          }
        }
        ASSERT_LE(position, tensor.numel) << test.text();
        ASSERT_LE(tensor.numel, tensor.padded_numel) << test.text();
        owned += position;
      }
      ASSERT_EQ(owned, plan.local_numel(rank)) << test.text();
    }
    for (std::size_t i = 0; i < owners.size(); ++i) {
      for (const int count : covered[i]) ASSERT_EQ(count, plan.replicas()) << test.text();
      if (!test.model.parameters[i].tied_to.empty()) continue;
      const auto size = static_cast<std::int64_t>(owners[i].size());
      const std::int64_t offset = std::uniform_int_distribution<std::int64_t>(0, size)(random);
      const std::int64_t count =
          std::uniform_int_distribution<std::int64_t>(0, size - offset)(random);
      std::int64_t next = offset;
      for (const Owner& owner : plan.owners(i, offset, count)) {
        ASSERT_EQ(owner.offset, next) << test.text();
        for (std::int64_t e = 0; e < owner.numel; ++e) {
          ASSERT_EQ(owners[i][static_cast<std::size_t>(next++)], owner.shard) << test.text();
        }
      }
      ASSERT_EQ(next, offset + count) << test.text();
    }
  }
}

TEST(ShardPlan, HasNoOwnersForWhatDoesNotExist) {
  const Model model = load_model(STEPSCOPE_TEST_DATA "/models/tied.json");
  const ShardPlan plan = fsdp2(model, 2);
  EXPECT_EQ(plan.owners(0, 0, 40).size(), 2U);
  EXPECT_THROW((void)plan.owners(0, 0, 41), Error);
  EXPECT_THROW((void)plan.owners(0, 40, 1), Error);
  EXPECT_THROW((void)plan.owners(0, -1, 1), Error);
  EXPECT_EQ(error_text([&] { (void)plan.owners(1, 0, 1); }),
            "parameter 1 is tied and has no shard; ask for the parameter that it is tied to");
}

TEST(ShardPlan, RefusesAWorldSizeOrRankThatCannotBe) {
  for (const std::int64_t world_size : {0LL, -1LL}) {
    EXPECT_EQ(error_text([&] { fsdp2(preset("tiny").value(), world_size); }),
              "the world size is " + std::to_string(world_size) + "; it is at least 1");
  }
  const ShardPlan plan = fsdp2(preset("tiny").value(), 2);
  for (const std::int64_t rank : {-1, 2}) {
    const std::string message = "there is no rank " + std::to_string(rank) + "; ranks are 0 to 1";
    EXPECT_EQ(error_text([&] { (void)plan.local_shards(rank); }), message);
    EXPECT_EQ(error_text([&] { (void)plan.local_numel(rank); }), message);
  }
}

TEST(ShardPlan, RefusesAModelThatIsNotValid) { EXPECT_THROW(fsdp2(model_of({-1}), 2), Error); }

TEST(TopologyName, IsWhatParseTopologyReads) {
  for (const Topology topology : all_topologies()) {
    EXPECT_EQ(parse_topology(topology_name(topology)), topology);
  }
  EXPECT_EQ(topology_name(Topology::hsdp), "hsdp");
  EXPECT_EQ(error_text([] { parse_topology("fsdp"); }),
            "unknown topology \"fsdp\"; use single, ddp, fsdp2, hsdp or fsdp1");
}

}  // namespace
}  // namespace stepscope::topologies
