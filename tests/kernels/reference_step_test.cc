#include "kernels/reference_step.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "kernels/code_tables.h"
#include "test_shard.h"

namespace stepscope::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Hyperparameters kAdamW{.learning_rate = 1e-3, .weight_decay = 0};
constexpr Hyperparameters kLion{.learning_rate = 1e-3, .beta2 = 0.99, .weight_decay = 0};

void step(Algorithm algorithm, const Hyperparameters& h, TestShard& shard, std::int64_t number) {
  step_reference(algorithm, h, shard.tensors(number));
}

// bitsandbytes issue 1992: Lion with FP32 state must decay the parameter, not the gradient.
TEST(ReferenceStep, LionDecaysTheParameterInBothFormats) {
  const Hyperparameters h{.learning_rate = 0.1, .beta2 = 0.99, .weight_decay = 0.1};
  for (const StateFormat format : {StateFormat::blockwise_8bit, StateFormat::fp32}) {
    for (const std::int64_t numel : {1, 8192}) {
      TestShard shard(Algorithm::Lion, DType::fp32, format, numel);
      shard.fill(1.0f, -0.05f);
      step(Algorithm::Lion, h, shard, 1);
      for (std::int64_t i = 0; i < numel; ++i) ASSERT_NEAR(shard.param(i), 1.09f, 1e-6f);
    }
  }
}

// bitsandbytes issue 2010: decay comes before the update; 0.891 is the wrong order.
TEST(ReferenceStep, AdamWDecaysBeforeTheUpdate) {
  const Hyperparameters h{.learning_rate = 0.1, .weight_decay = 0.1};
  for (const StateFormat format : {StateFormat::blockwise_8bit, StateFormat::fp32}) {
    TestShard shard(Algorithm::AdamW, DType::fp32, format, 1);
    shard.fill(1.0f, 1.0f);
    step(Algorithm::AdamW, h, shard, 1);
    EXPECT_NEAR(shard.param(0), 0.89f, 1e-6f);
  }
}

// What bitsandbytes does to a parameter whose gradient is always zero; 0 would be right.
TEST(ReferenceStep, ZeroGradientsDriftAsInBitsandbytes) {
  const auto drift = [](Algorithm algorithm, const Hyperparameters& h, int steps) {
    TestShard shard(algorithm, DType::fp32, StateFormat::blockwise_8bit, 8192);
    for (std::int64_t i = 1; i < 8192; i += 2) shard.set_grad(i, 1.0f);
    for (int t = 1; t <= steps; ++t) step(algorithm, h, shard, t);
    for (std::int64_t i = 2; i < 8192; i += 2) EXPECT_EQ(shard.param(i), shard.param(0));
    return shard.param(0);
  };
  EXPECT_NEAR(drift(Algorithm::AdamW, kAdamW, 500), -0.00242f, 1e-5f);
  EXPECT_NEAR(drift(Algorithm::Lion, kLion, 5), -0.004f, 1e-6f);
}

TEST(ReferenceStep, InfinityInAGradientSpoilsItsBlockByTheSecondAdamWStep) {
  TestShard shard(Algorithm::AdamW, DType::fp32, StateFormat::blockwise_8bit, 8192);
  shard.fill(0.5f, 0.01f);
  shard.set_grad(300, kInf);
  step(Algorithm::AdamW, kAdamW, shard, 1);
  EXPECT_EQ(shard.absmax1(1), kInf);
  shard.set_grad(300, 0.01f);
  step(Algorithm::AdamW, kAdamW, shard, 2);
  for (std::int64_t i = 0; i < 8192; ++i) {
    ASSERT_EQ(std::isnan(shard.param(i)), i >= 256 && i < 512) << i;
  }
}

TEST(ReferenceStep, InfinityInAGradientStaysHiddenInLionsAbsmax) {
  TestShard shard(Algorithm::Lion, DType::fp32, StateFormat::blockwise_8bit, 8192);
  shard.fill(0.5f, 0.01f);
  shard.set_grad(300, kInf);
  for (int t = 1; t <= 2; ++t) step(Algorithm::Lion, kLion, shard, t);
  EXPECT_EQ(shard.absmax1(1), kInf);
  for (std::int64_t i = 0; i < 8192; ++i) ASSERT_TRUE(std::isfinite(shard.param(i))) << i;
}

TEST(ReferenceStep, NanInAGradientSpoilsThatElementAlone) {
  for (const Algorithm algorithm : {Algorithm::AdamW, Algorithm::Lion}) {
    TestShard shard(algorithm, DType::fp32, StateFormat::blockwise_8bit, 8192);
    shard.fill(0.5f, 0.01f);
    shard.set_grad(300, kNan);
    for (int t = 1; t <= 2; ++t) {
      step(algorithm, algorithm == Algorithm::AdamW ? kAdamW : kLion, shard, t);
    }
    EXPECT_GT(shard.absmax1(1), 0.0f);
    for (std::int64_t i = 0; i < 8192; ++i) {
      const bool spoilt = algorithm == Algorithm::AdamW && i == 300;
      ASSERT_EQ(std::isnan(shard.param(i)), spoilt) << i;
    }
  }
}

// bitsandbytes issues 88 and 25: all three data types step, each rounding once.
TEST(ReferenceStep, EveryDTypeRoundsTheParameterOnce) {
  const Hyperparameters h{.learning_rate = 0.1, .weight_decay = 0};
  const std::pair<DType, float> cases[] = {
      {DType::fp32, 0.9f}, {DType::bf16, 0.8984375f}, {DType::fp16, 0.89990234375f}};
  for (const auto& [dtype, value] : cases) {
    TestShard shard(Algorithm::AdamW, dtype, StateFormat::blockwise_8bit, 1);
    shard.fill(1.0f, 1.0f);
    step(Algorithm::AdamW, h, shard, 1);
    EXPECT_FLOAT_EQ(shard.param(0), value);
  }
}

// bitsandbytes pull request 1884: the scale of the last, short block depends on its own elements.
TEST(ReferenceStep, TheTailBlockHasItsOwnAbsmax) {
  TestShard shard(Algorithm::AdamW, DType::fp32, StateFormat::blockwise_8bit, 4097);
  shard.fill(0.0f, 0.5f);
  step(Algorithm::AdamW, kAdamW, shard, 1);
  EXPECT_NEAR(shard.absmax1(16), 0.05f, 1e-8f);
  EXPECT_NEAR(shard.absmax2(16), 2.5e-4f, 1e-9f);
  EXPECT_TRUE(shard.guards_are_whole());
}

TEST(ReferenceStep, AnAllZeroBlockKeepsAbsmaxZeroAndCodesZero) {
  TestShard shard(Algorithm::AdamW, DType::fp32, StateFormat::blockwise_8bit, 512);
  for (std::int64_t i = 256; i < 512; ++i) shard.set_grad(i, 1.0f);
  step(Algorithm::AdamW, kAdamW, shard, 1);
  EXPECT_EQ(shard.absmax1(0), 0.0f);
  EXPECT_EQ(shard.absmax2(0), 0.0f);
  for (std::int64_t i = 0; i < 256; ++i) {
    ASSERT_EQ(shard.code1(i), 0);
    ASSERT_EQ(shard.code2(i), 0);
    ASSERT_EQ(shard.param(i), 0.0f);
  }
}

TEST(ReferenceStep, MinusAbsmaxLosesMagnitude) {
  TestShard shard(Algorithm::Lion, DType::fp32, StateFormat::blockwise_8bit, 256);
  shard.set_grad(0, -8.0f);
  shard.set_grad(1, 8.0f);
  step(Algorithm::Lion, kLion, shard, 1);
  EXPECT_EQ(shard.code1(0), 0);
  EXPECT_EQ(shard.code1(1), 255);
  EXPECT_NEAR(code_value(kSignedCodeBits, shard.code1(0)), -0.993f, 1e-4f);
}

TEST(ReferenceStep, TorchRuleNeedsFp32) {
  TestShard shard(Algorithm::AdamW, DType::bf16, StateFormat::fp32, 8);
  EXPECT_THROW(step_torch_adamw_reference(kAdamW, shard.tensors(1)), Error);
}

}  // namespace
}  // namespace stepscope::kernels
