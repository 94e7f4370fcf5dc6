#include "topologies/planned_bytes.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "topologies/load_model.h"

namespace stepscope::topologies {
namespace {

Model data(const std::string& name) { return load_model(STEPSCOPE_TEST_DATA "/models/" + name); }

Model model_of(const std::vector<std::int64_t>& shape, std::int64_t count = 1) {
  Model model{.name = "m", .parameters = {}};
  for (std::int64_t i = 0; i < count; ++i) {
    model.parameters.push_back({.name = "w" + std::to_string(i), .shape = shape});
  }
  return model;
}

PlannedBytes fsdp2(const Model& model, std::int64_t world_size, std::int64_t rank,
                   Optimizer optimizer) {
  return planned_bytes(model, ShardPlan::make(model, Topology::fsdp2, world_size), rank, optimizer);
}

PlannedBytes single(const Model& model, Optimizer optimizer) {
  return planned_bytes(model, ShardPlan::make(model, Topology::single, 1), 0, optimizer);
}

// Measured on bitsandbytes: N * 16,640 + 2048, for the code tables are shared. N * 18,688 would
// count them once a parameter; FP32 moments take N * 65,536.
TEST(PlannedBytes, CountsTheCodeTablesOncePerRank) {
  for (const std::int64_t n : {1, 2, 100}) {
    const Model model = model_of({8192}, n);
    EXPECT_EQ(single(model, Optimizer::AdamW8bit).moment, n * 16'640);
    EXPECT_EQ(single(model, Optimizer::AdamW8bit).code_tables, 2048);
    EXPECT_EQ(single(model, Optimizer::AdamW8bit).state(), n * 16'640 + 2048);
    EXPECT_EQ(single(model, Optimizer::AdamW).moment, n * 65'536);
  }
}

TEST(PlannedBytes, SavesNothingBelowTheThreshold) {
  const Model model = model_of({2048}, 7);
  const PlannedBytes bytes = single(model, Optimizer::AdamW8bit);
  EXPECT_EQ(bytes.moment, 7 * 16'384);
  EXPECT_EQ(bytes.code_tables, 0);
  EXPECT_EQ(bytes.step_counters, 0);
  EXPECT_EQ(bytes.fp32_fallbacks, 7);
  EXPECT_EQ(single(model, Optimizer::AdamW).moment, bytes.moment);
  EXPECT_EQ(single(model, Optimizer::AdamW).fp32_fallbacks, 0);
}

// 2 + 8/256, 1 + 4/256 and 8 bytes a parameter wherever shards are multiples of the block.
TEST(PlannedBytes, OfBlockMultiplesAreTheKnownRatios) {
  const Model model = data("block_multiples.json");
  for (const std::int64_t world_size : {1, 2, 4}) {
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
      const PlannedBytes adamw8 = fsdp2(model, world_size, rank, Optimizer::AdamW8bit);
      EXPECT_EQ(static_cast<double>(adamw8.moment) / static_cast<double>(adamw8.stepped_numel),
                2.03125);
      const PlannedBytes lion8 = fsdp2(model, world_size, rank, Optimizer::Lion8bit);
      EXPECT_EQ(static_cast<double>(lion8.moment) / static_cast<double>(lion8.stepped_numel),
                1.015625);
      const PlannedBytes adamw = fsdp2(model, world_size, rank, Optimizer::AdamW);
      EXPECT_EQ(adamw.moment, 8 * adamw.stepped_numel);
      EXPECT_EQ(adamw.step_counters, 3 * 4);
      EXPECT_EQ(adamw.state(), 8 * adamw.stepped_numel + 12);
    }
  }
}

TEST(PlannedBytes, CountsTheBlocksOfTheShardNotOfTheParameter) {
  const Model model = model_of({1601, 1280});
  std::int64_t blocks = 0;
  for (const std::int64_t rank : {0, 1, 2, 3}) {
    const PlannedBytes bytes = fsdp2(model, 4, rank, Optimizer::Lion8bit);
    EXPECT_EQ((bytes.moment - bytes.local_numel) % 4, 0);
    const std::int64_t mine = (bytes.moment - bytes.local_numel) / 4;
    EXPECT_EQ(mine, rank < 3 ? 2005 : 1990);
    blocks += mine;
  }
  EXPECT_EQ(blocks, 8005);
}

TEST(PlannedBytes, CountsALastBlockThatIsNotFull) {
  EXPECT_EQ(single(model_of({4097}), Optimizer::Lion8bit).moment, 4097 + 17 * 4);
  EXPECT_EQ(fsdp2(model_of({4097}), 2, 0, Optimizer::Lion8bit).moment, 2049 + 9 * 4);
  EXPECT_EQ(fsdp2(model_of({4097}), 2, 1, Optimizer::Lion8bit).moment, 2048 + 8 * 4);
}

// Measured on bitsandbytes with a DTensor: the precision follows the whole parameter.
TEST(PlannedBytes, KeepsThePrecisionOfTheWholeParameter) {
  for (const std::int64_t world_size : {1, 2, 6}) {
    EXPECT_EQ(fsdp2(model_of({6, 1024}), world_size, 0, Optimizer::AdamW8bit).fp32_fallbacks, 0);
    EXPECT_EQ(fsdp2(model_of({4095}), world_size, 0, Optimizer::AdamW8bit).fp32_fallbacks, 1);
  }
  EXPECT_EQ(single(model_of({6, 1024}), Optimizer::AdamW8bit).moment, 2 * (6144 + 4 * 24));
  EXPECT_EQ(single(model_of({4096}), Optimizer::AdamW8bit).moment, 2 * (4096 + 4 * 16));
  EXPECT_EQ(single(model_of({4095}), Optimizer::AdamW8bit).moment, 8 * 4095);
}

TEST(PlannedBytes, OfAnEmptyShardAreItsPaddingAlone) {
  const Model model = data("empty_shards.json");
  const PlannedBytes bytes = fsdp2(model, 8, 7, Optimizer::AdamW);
  EXPECT_EQ(bytes.local_numel, 0);
  EXPECT_EQ(bytes.state(), 0);
  EXPECT_EQ(bytes.fp32_fallbacks, 0);
  EXPECT_EQ(bytes.parameter, 4 * (64 + 7 + 3 * 64));
  EXPECT_EQ(bytes.gradient, bytes.parameter);
}

TEST(PlannedBytes, OfFrozenParametersAreTheParameterAlone) {
  const Model model = data("frozen.json");
  const PlannedBytes bytes = fsdp2(model, 2, 0, Optimizer::AdamW8bit);
  EXPECT_EQ(bytes.parameter, 3 * 4096 * 4);
  EXPECT_EQ(bytes.gradient, 4096 * 4);
  EXPECT_EQ(bytes.local_numel, 3 * 4096);
  EXPECT_EQ(bytes.stepped_numel, 4096);
  EXPECT_EQ(bytes.moment, 2 * (4096 + 4 * 16));
  EXPECT_EQ(fsdp2(model, 2, 0, Optimizer::AdamW).step_counters, 4);
}

TEST(PlannedBytes, CountSharedStorageOnce) {
  const PlannedBytes bytes = single(data("tied.json"), Optimizer::AdamW);
  EXPECT_EQ(bytes.parameter, 40 * 4);
  EXPECT_EQ(bytes.gradient, 40 * 4);
  EXPECT_EQ(bytes.moment, 40 * 8);
  EXPECT_EQ(bytes.step_counters, 4);
}

TEST(PlannedBytes, FollowTheDataTypeOfEachParameterUnlessItIsReplaced) {
  const Model model = data("mixed_dtypes.json");
  const ShardPlan plan = ShardPlan::make(model, Topology::single, 1);
  const auto bytes = [&](std::optional<kernels::DType> dtype) {
    return planned_bytes(model, plan, 0, Optimizer::AdamW8bit, dtype);
  };
  EXPECT_EQ(bytes({}).parameter, 4 * 1024 + 2 * 8192 + 2 * 4160);
  EXPECT_EQ(bytes({}).gradient, bytes({}).parameter);
  EXPECT_EQ(bytes(kernels::DType::fp32).parameter, 4 * model.numel());
  EXPECT_EQ(bytes(kernels::DType::bf16).parameter, 2 * model.numel());
  EXPECT_EQ(bytes(kernels::DType::bf16).state(), bytes({}).state());
}

TEST(PlannedBytes, FollowTheThresholdTheyAreGiven) {
  const Model model = model_of({2048});
  const ShardPlan plan = ShardPlan::make(model, Topology::single, 1);
  EXPECT_EQ(
      planned_bytes(model, plan, 0, Optimizer::Lion8bit, {}, StatePolicy::global, 2048).moment,
      2048 + 4 * 8);
}

TEST(PlannedBytes, CountBeyond32Bits) {
  const PlannedBytes bytes = single(data("large.json"), Optimizer::AdamW8bit);
  EXPECT_EQ(bytes.parameter, 4 * 2'476'250'368);
  EXPECT_EQ(bytes.moment, 2 * (2'476'250'368 + 4 * 9'672'853LL));
  EXPECT_EQ(bytes.total(), 2 * bytes.parameter + bytes.moment + 2048);
  // The largest model there can be, in the largest state: no overflow.
  EXPECT_EQ(single(model_of({kMaxModelNumel}), Optimizer::AdamW).total(), 16 * kMaxModelNumel + 4);
}

// 405,853,388,800 * 2.03125 is 824,389,695,625 bytes; every shard of 8 ranks is whole blocks.
TEST(PlannedBytes, OfLlama405bOnEightRanksAddUp) {
  const Model model = load_model("llama-3.1-405b");
  std::int64_t moment = 0;
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    moment += fsdp2(model, 8, rank, Optimizer::AdamW8bit).moment;
  }
  EXPECT_EQ(moment, 405'853'388'800 * 2 + 405'853'388'800 / 256 * 8);
}

}  // namespace
}  // namespace stepscope::topologies
