#include "topologies/state_policy.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

using kernels::StateFormat;

TEST(StatePolicyGlobal, KeepsFp32BelowTheThresholdAsBitsandbytesDoes) {
  const auto format = [](std::int64_t global_numel, std::int64_t local_numel) {
    return state_format(StatePolicy::global, true, global_numel, local_numel);
  };
  EXPECT_EQ(format(4095, 4095), StateFormat::fp32);
  EXPECT_EQ(format(4096, 4096), StateFormat::blockwise_8bit);
}

// The same parameter, whole or in parts, must not change its precision.
TEST(StatePolicyGlobal, DoesNotLookAtTheShard) {
  for (const std::int64_t local : {6144, 3072, 1, 0}) {
    EXPECT_EQ(state_format(StatePolicy::global, true, 6144, local), StateFormat::blockwise_8bit);
  }
}

TEST(StatePolicyGlobal, FollowsTheThresholdItIsGiven) {
  EXPECT_EQ(state_format(StatePolicy::global, true, 1, 1, 0), StateFormat::blockwise_8bit);
  EXPECT_EQ(state_format(StatePolicy::global, true, 99'999, 1, 100'000), StateFormat::fp32);
}

TEST(StatePolicyGlobal, IsFp32WhereTheOptimizerDoesNotAskFor8bit) {
  EXPECT_EQ(state_format(StatePolicy::global, false, 1 << 20, 1 << 20), StateFormat::fp32);
}

// The same 6144 elements whole and halved: under `local` the precision changes with the layout.
TEST(StatePolicyLocal, LooksAtTheShardAlone) {
  EXPECT_EQ(state_format(StatePolicy::local, true, 6144, 6144), StateFormat::blockwise_8bit);
  EXPECT_EQ(state_format(StatePolicy::local, true, 6144, 3072), StateFormat::fp32);
  EXPECT_EQ(state_format(StatePolicy::local, true, 8192, 4095), StateFormat::fp32);
  EXPECT_EQ(state_format(StatePolicy::local, true, 8192, 4096), StateFormat::blockwise_8bit);
}

Model flat_unit() {
  return {.name = "m",
          .parameters = {{.name = "a.w", .shape = {4500}}, {.name = "a.b", .shape = {300}}}};
}

std::vector<StatePiece> pieces_of(const Model& model, std::int64_t world_size, std::int64_t rank,
                                  Optimizer optimizer, StatePolicy policy) {
  const ShardPlan plan =
      ShardPlan::make(model, {.topology = Topology::fsdp1, .world_size = world_size});
  return state_pieces(model, plan.local_tensors(rank).at(0), optimizer, policy);
}

// 4800 elements in a unit, 686 on each of seven ranks, of which two are padding on the last.
TEST(StatePieces, AreTheWholeTensorWithPaddingUnlessTheyFollowTheParameters) {
  for (const StatePolicy policy : {StatePolicy::local, StatePolicy::global}) {
    const auto pieces = pieces_of(flat_unit(), 7, 6, Optimizer::AdamW8bit, policy);
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces[0].numel, 686);  // 7 * 686 = 4802
    EXPECT_EQ(pieces[0].moment_numel(), 686);
    EXPECT_EQ(pieces[0].format,
              policy == StatePolicy::local ? StateFormat::fp32 : StateFormat::blockwise_8bit);
  }
  const auto adamw = pieces_of(flat_unit(), 7, 6, Optimizer::AdamW, StatePolicy::original);
  ASSERT_EQ(adamw.size(), 1U);
  EXPECT_EQ(adamw[0].numel, 686);
}

TEST(StatePiecesOriginal, AreWholeBlocksOfTheParameterWithoutPadding) {
  // Rank 6 of 7 has elements 4116 .. 4800 of the unit: 384 of a.w, all of a.b, two of padding.
  const auto pieces = pieces_of(flat_unit(), 7, 6, Optimizer::AdamW8bit, StatePolicy::original);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].format, StateFormat::blockwise_8bit);
  EXPECT_EQ(pieces[0].position, 0);
  EXPECT_EQ(pieces[0].numel, 384);
  EXPECT_EQ(pieces[0].before, 4116 - 4096);
  EXPECT_EQ(pieces[0].after, 0);  // the parameter ends within its last block
  EXPECT_EQ(pieces[1].format, StateFormat::fp32);
  EXPECT_EQ(pieces[1].position, 384);
  EXPECT_EQ(pieces[1].moment_numel(), 300);
  const auto first = pieces_of(flat_unit(), 7, 0, Optimizer::Lion8bit, StatePolicy::original);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].before, 0);
  EXPECT_EQ(first[0].after, 768 - 686);
}

TEST(StatePieces, AreNoneForWhatIsNotStepped) {
  Model model = flat_unit();
  for (Parameter& parameter : model.parameters) parameter.requires_grad = false;
  EXPECT_TRUE(pieces_of(model, 2, 0, Optimizer::AdamW8bit, StatePolicy::original).empty());
  const ShardPlan empty = ShardPlan::make(flat_unit(), Topology::fsdp2, 4501);
  EXPECT_TRUE(state_pieces(flat_unit(), empty.local_tensors(4500).at(0), Optimizer::AdamW8bit,
                           StatePolicy::global)
                  .empty());
}

TEST(StatePolicy, NamesAreWhatParseReads) {
  for (const StatePolicy policy : all_state_policies()) {
    EXPECT_EQ(parse_state_policy(state_policy_name(policy)), policy);
  }
  EXPECT_EQ(error_text([] { parse_state_policy("Global"); }),
            "unknown state policy \"Global\"; use local, global or original");
}

}  // namespace
}  // namespace stepscope::topologies
