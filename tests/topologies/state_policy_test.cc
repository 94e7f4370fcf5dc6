#include "topologies/state_policy.h"

#include <gtest/gtest.h>

#include "tests/topologies/error_text.h"

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

TEST(StatePolicy, NamesAreWhatParseReads) {
  for (const StatePolicy policy : all_state_policies()) {
    EXPECT_EQ(parse_state_policy(state_policy_name(policy)), policy);
  }
  EXPECT_EQ(error_text([] { parse_state_policy("Global"); }),
            "unknown state policy \"Global\"; use local, global or original");
}

}  // namespace
}  // namespace stepscope::topologies
