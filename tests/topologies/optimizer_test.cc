#include "topologies/optimizer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

TEST(Optimizer, NamesAreWhatParseReads) {
  ASSERT_EQ(all_optimizers().size(), 3U);
  for (const Optimizer optimizer : all_optimizers()) {
    EXPECT_EQ(parse_optimizer(optimizer_name(optimizer)), optimizer);
  }
  EXPECT_EQ(optimizer_name(Optimizer::AdamW8bit), "AdamW8bit");
  EXPECT_EQ(optimizer_name(Optimizer::Lion8bit), "Lion8bit");
  EXPECT_EQ(optimizer_name(Optimizer::AdamW), "AdamW");
  EXPECT_EQ(error_text([] { parse_optimizer("adamw"); }),
            "unknown optimizer \"adamw\"; use AdamW8bit, Lion8bit or AdamW");
}

TEST(Optimizer, WhatBitsandbytesHasBeyondTheseIsRefusedByNameWithTheReason) {
  for (const auto& [name, reason] : {std::pair{"PagedAdamW8bit", "its state is paged"},
                                     {"PagedLion8bit", "its state is paged"},
                                     {"paged_adamw_8bit", "its state is paged"},
                                     {"PagedAdEMAMix8bit", "its state is paged"},
                                     {"AdEMAMix8bit", "AdEMAMix keeps a third moment"},
                                     {"ademamix", "AdEMAMix keeps a third moment"},
                                     {"LAMB8bit", "LAMB needs the norm of the whole parameter"},
                                     {"LARS", "LARS needs the norm of the whole parameter"}}) {
    const std::string said = error_text([&] { parse_optimizer(name); });
    const std::string start =
        "optimizer \"" + std::string(name) + "\" is not supported: " + std::string(reason);
    EXPECT_TRUE(said.starts_with(start)) << said;
    EXPECT_TRUE(said.ends_with("; use AdamW8bit, Lion8bit or AdamW")) << said;
  }
}

TEST(Optimizer, KnowsItsStateAndRule) {
  EXPECT_EQ(algorithm(Optimizer::AdamW8bit), kernels::Algorithm::AdamW);
  EXPECT_EQ(algorithm(Optimizer::Lion8bit), kernels::Algorithm::Lion);
  EXPECT_EQ(algorithm(Optimizer::AdamW), kernels::Algorithm::AdamW);
  EXPECT_EQ(moment_count(Optimizer::AdamW8bit), 2);
  EXPECT_EQ(moment_count(Optimizer::Lion8bit), 1);
  EXPECT_EQ(moment_count(Optimizer::AdamW), 2);
  EXPECT_TRUE(asks_8bit(Optimizer::AdamW8bit));
  EXPECT_TRUE(asks_8bit(Optimizer::Lion8bit));
  EXPECT_FALSE(asks_8bit(Optimizer::AdamW));
}

}  // namespace
}  // namespace stepscope::topologies
