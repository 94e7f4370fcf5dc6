#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/cuda/step_table.h"

namespace stepscope::kernels::cuda {
namespace {

/// An address that nobody dereferences: the table only looks at where tensors lie.
void* made_up(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// A shard of 8-bit Adam at made-up addresses, `megabytes` apart from any other.
ShardTensors shard_at(std::uintptr_t megabytes, std::int64_t numel, DType dtype = DType::fp32) {
  const std::uintptr_t base = megabytes << 20;
  const auto at = [&](std::uintptr_t part) { return made_up(base + (part << 17)); };
  return {.param = at(0),
          .grad = at(1),
          .numel = numel,
          .dtype = dtype,
          .grad_dtype = dtype,
          .format = StateFormat::blockwise_8bit,
          .step = 1,
          .state1 = at(2),
          .state2 = at(3),
          .absmax1 = static_cast<float*>(at(4)),
          .absmax2 = static_cast<float*>(at(5)),
          .absmax_count = block_count(numel)};
}

std::string refusal(const std::vector<ShardTensors>& shards) {
  try {
    build_step_table(Algorithm::AdamW, shards);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(StepTable, NumbersBlocksThroughAllTensorsAndLeavesOutEmptyOnes) {
  const std::vector<ShardTensors> shards = {shard_at(1, 257), shard_at(2, 0), shard_at(3, 256),
                                            shard_at(4, 1)};
  const StepTable table = build_step_table(Algorithm::AdamW, shards);
  ASSERT_EQ(table.tensors.size(), 3u);
  EXPECT_EQ(table.blocks, 4);
  EXPECT_EQ(table.tensors[1].first_block, 2);
  EXPECT_EQ(table.tensors[1].end_block, 3);
  EXPECT_EQ(table.tensors[2].end_block, 4);
}

TEST(StepTable, CountsIn64Bits) {
  // Case A12: beyond 2^31 elements. The tensors lie 2^40 bytes apart.
  ShardTensors shard = shard_at(1, std::int64_t{19345706} * 128);
  std::uintptr_t next = 1;
  const auto far = [&] { return made_up(next++ << 40); };
  shard.absmax_count = 9672853;
  shard.param = far();
  shard.grad = far();
  shard.state1 = far();
  shard.state2 = far();
  shard.absmax1 = static_cast<float*>(far());
  shard.absmax2 = static_cast<float*>(far());
  const std::array shards = {shard};
  const StepTable table = build_step_table(Algorithm::AdamW, shards);
  EXPECT_EQ(table.blocks, 9672853);
  const StepArguments arguments = deal_out(table, 264);
  EXPECT_EQ(arguments.blocks_per_thread_block * 264 + arguments.extra_blocks, table.blocks);
}

TEST(StepTable, KeepsEachTensorsOwnStep) {
  std::vector<ShardTensors> shards = {shard_at(1, 1), shard_at(2, 1)};
  shards[1].step = 77;
  const StepTable table = build_step_table(Algorithm::AdamW, shards);
  EXPECT_EQ(table.steps[0].step, 1);
  EXPECT_EQ(table.steps[1].step, 77);
}

TEST(StepTable, WideAccessNeedsEveryPointerAligned) {
  const auto vectorizable = [](ShardTensors shard) {
    const std::array shards = {shard};
    return build_step_table(Algorithm::AdamW, shards).tensors[0].vectorizable;
  };
  const auto moved = [](const void* pointer, int bytes) {
    return made_up(reinterpret_cast<std::uintptr_t>(pointer) + static_cast<std::uintptr_t>(bytes));
  };
  EXPECT_TRUE(vectorizable(shard_at(1, 300)));
  ShardTensors shard = shard_at(1, 300);
  shard.param = moved(shard.param, 4);
  EXPECT_FALSE(vectorizable(shard));
  shard = shard_at(1, 300);
  shard.grad = moved(shard.grad, 8);
  EXPECT_FALSE(vectorizable(shard));
  shard = shard_at(1, 300);
  shard.state1 = moved(shard.state1, 4);
  EXPECT_TRUE(vectorizable(shard));
  shard.state2 = moved(shard.state2, 2);
  EXPECT_FALSE(vectorizable(shard));
  // Eight 16-bit elements a run need codes at multiples of eight.
  shard = shard_at(1, 300, DType::bf16);
  shard.state1 = moved(shard.state1, 4);
  EXPECT_FALSE(vectorizable(shard));
}

TEST(StepTable, RefusesOverlapsWithinAndBetweenShards) {
  EXPECT_NE(refusal({shard_at(1, 300), shard_at(1, 300)}).find("shards 0 and 1"),
            std::string::npos);
  ShardTensors shard = shard_at(1, 300);
  shard.grad = shard.param;
  EXPECT_NE(refusal({shard}).find("overlap"), std::string::npos);
}

TEST(StepTable, RefusesTensorsThatCannotBeStepped) {
  ShardTensors shard = shard_at(1, 300);
  shard.state2 = nullptr;
  EXPECT_NE(refusal({shard}).find("state2 is null"), std::string::npos);
  shard = shard_at(1, 300);
  shard.param = made_up(reinterpret_cast<std::uintptr_t>(shard.param) + 2);
  EXPECT_NE(refusal({shard}).find("aligned"), std::string::npos);
  EXPECT_NE(refusal({shard_at(1, -1)}).find("numel"), std::string::npos);
  shard = shard_at(1, 300, DType::bf16);
  shard.grad_dtype = DType::fp32;
  EXPECT_NE(refusal({shard}).find("its gradient fp32"), std::string::npos);
  shard = shard_at(1, 300);
  shard.absmax_count = 1;
  EXPECT_NE(refusal({shard}).find("absmaxes"), std::string::npos);
}

TEST(DealOut, GivesEveryBlockToOneThreadBlock) {
  const std::vector<ShardTensors> shards = {shard_at(1, 257), shard_at(2, 10000)};
  const StepTable table = build_step_table(Algorithm::AdamW, shards);
  for (const std::int64_t grid : {1, 2, 7, 42, 100}) {
    const StepArguments arguments = deal_out(table, grid);
    EXPECT_LT(arguments.extra_blocks, grid);
    EXPECT_EQ(arguments.blocks_per_thread_block * grid + arguments.extra_blocks, table.blocks);
  }
  EXPECT_EQ(grid_size(table, 264), (table.blocks + kWarps - 1) / kWarps);
  EXPECT_EQ(grid_size(table, 2), 2);
}

}  // namespace
}  // namespace stepscope::kernels::cuda
