#include "kernels/bnb_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"
#include "kernels/bnb_cuda_reference.h"
#include "kernels/reference_step.h"

namespace stepscope::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr auto kSignedRanks = bnb_cuda::SignedRankTable::build(kSignedCodeBits, 127);
constexpr auto kUnsignedRanks = bnb_cuda::UnsignedRankTable::build(kUnsignedCodeBits, 0);

/// One fp32 shard with its state, all zero but for what a test sets.
struct Shard {
  explicit Shard(std::int64_t n, StateFormat state_format = StateFormat::blockwise_8bit)
      : param(static_cast<std::size_t>(n)),
        grad(static_cast<std::size_t>(n)),
        codes1(static_cast<std::size_t>(n)),
        codes2(static_cast<std::size_t>(n)),
        floats1(static_cast<std::size_t>(n)),
        floats2(static_cast<std::size_t>(n)),
        absmax1(static_cast<std::size_t>(block_count(n))),
        absmax2(static_cast<std::size_t>(block_count(n))),
        format(state_format) {}

  /// Either arithmetic: step_bnb_cuda_reference or, for `bnb-cpu`, step_reference.
  using Arithmetic = void (*)(Algorithm, const Hyperparameters&, const ShardTensors&);

  void step(Algorithm algorithm, const Hyperparameters& h,
            Arithmetic arithmetic = step_bnb_cuda_reference) {
    ShardTensors tensors{.param = param.data(),
                         .grad = grad.data(),
                         .numel = static_cast<std::int64_t>(param.size()),
                         .dtype = DType::fp32,
                         .format = format,
                         .step = ++steps};
    const bool two_states = algorithm == Algorithm::AdamW;
    if (format == StateFormat::fp32) {
      tensors.state1 = floats1.data();
      if (two_states) tensors.state2 = floats2.data();
    } else {
      tensors.state1 = codes1.data();
      tensors.absmax1 = absmax1.data();
      tensors.absmax_count = static_cast<std::int64_t>(absmax1.size());
      if (two_states) {
        tensors.state2 = codes2.data();
        tensors.absmax2 = absmax2.data();
      }
    }
    arithmetic(algorithm, h, tensors);
  }

  std::vector<float> param, grad;
  std::vector<std::uint8_t> codes1, codes2;
  std::vector<float> floats1, floats2, absmax1, absmax2;
  StateFormat format;
  std::int64_t steps = 0;
};

/// The same numbers in every run.
std::mt19937 seeded(unsigned seed) { return std::mt19937(seed); }

/// The definition of the nearest code, by looking at all 256 of them.
std::uint8_t brute_force_nearest(const std::array<std::uint32_t, 256>& table, float x) {
  if (std::isnan(x)) return 0;
  x = std::clamp(x, -2.0f, 2.0f);  // far outside, all distances round to the same
  int best = 0;
  for (int code = 1; code < 256; ++code) {
    const double to_best = std::abs(double{x} - code_value(table, static_cast<std::uint8_t>(best)));
    const double to_code = std::abs(double{x} - code_value(table, static_cast<std::uint8_t>(code)));
    const bool tie = x == bnb_cuda::midpoint(table, static_cast<std::size_t>(code - 1));
    if (tie ? code % 2 == 0 : to_code < to_best) best = code;
  }
  return static_cast<std::uint8_t>(best);
}

/// Values where a quantizer can go wrong: every code, every border between two codes and its
/// neighbours, the specials, and random ones over all magnitudes.
std::vector<float> probing_values(const std::array<std::uint32_t, 256>& table) {
  std::vector<float> values = {0.0f,  -0.0f, 1.0f,  -1.0f,  1.0000001f, 2.0f,
                               -2.0f, kInf,  -kInf, 1e-45f, -1e-45f,    3.4e38f};
  for (std::size_t code = 0; code < 256; ++code) {
    values.push_back(code_value(table, static_cast<std::uint8_t>(code)));
    if (code == 255) break;
    const float border = bnb_cuda::midpoint(table, code);
    values.insert(values.end(),
                  {border, std::nextafter(border, kInf), std::nextafter(border, -kInf)});
  }
  std::mt19937 random = seeded(7);
  std::uniform_real_distribution<float> exponent(-30.0f, 1.0f);
  for (int i = 0; i < 20000; ++i) {
    const float x = std::exp2(exponent(random));
    values.insert(values.end(), {x, -x});
  }
  return values;
}

TEST(NearestCode, AgreesWithBruteForceOverAllCodes) {
  for (const auto& table : {kSignedCodeBits, kUnsignedCodeBits}) {
    for (const float x : probing_values(table)) {
      ASSERT_EQ(bnb_cuda::nearest_code(table, x), brute_force_nearest(table, x)) << x;
    }
  }
}

TEST(NearestCode, TiesGoToTheEvenCode) {
  for (const auto& table : {kSignedCodeBits, kUnsignedCodeBits}) {
    for (std::size_t code = 0; code < 255; ++code) {
      EXPECT_EQ(bnb_cuda::nearest_code(table, bnb_cuda::midpoint(table, code)) % 2, 0) << code;
    }
  }
}

TEST(NearestCode, EveryCodeIsReached) {
  for (const auto& table : {kSignedCodeBits, kUnsignedCodeBits}) {
    for (int code = 0; code < 256; ++code) {
      const auto wanted = static_cast<std::uint8_t>(code);
      EXPECT_EQ(bnb_cuda::nearest_code(table, code_value(table, wanted)), wanted);
    }
  }
}

TEST(NearestCode, SignedTableIsItsOwnMirrorImage) {
  for (std::size_t code = 0; code < 127; ++code) {
    EXPECT_EQ(kSignedCodeBits[code], kSignedCodeBits[254 - code] | 0x80000000u) << code;
  }
}

TEST(RankTable, GivesTheCodesOfTheSearch) {
  const float tiny = 1e-42f;
  for (const float inverse : {1.0f, 0.37f, 3e30f, kInf}) {
    for (float x : probing_values(kSignedCodeBits)) {
      for (const float moment : {x, x / inverse, x * tiny, kNaN}) {
        ASSERT_EQ(bnb_cuda::fast_signed_code(kSignedRanks.data(), moment, inverse),
                  bnb_cuda::signed_code(moment, inverse))
            << moment << " times " << inverse;
      }
    }
    for (float x : probing_values(kUnsignedCodeBits)) {
      for (const float moment : {std::abs(x), std::abs(x / inverse), std::abs(x) * tiny, kNaN}) {
        ASSERT_EQ(bnb_cuda::fast_unsigned_code(kUnsignedRanks.data(), moment, inverse),
                  bnb_cuda::unsigned_code(moment, inverse))
            << moment << " times " << inverse;
      }
    }
  }
}

TEST(RankTable, GivesTheCodesOfTheSearchOnASweepOfAllMagnitudes) {
  // Every 61st float of [0, 2]: 61 is odd, so all parts of all bins are met.
  for (std::uint32_t bits = 0; bits < 0x40000000u; bits += 61 * 16) {
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(bnb_cuda::fast_signed_code(kSignedRanks.data(), x, 1.0f),
              bnb_cuda::signed_code(x, 1.0f));
    ASSERT_EQ(bnb_cuda::fast_signed_code(kSignedRanks.data(), -x, 1.0f),
              bnb_cuda::signed_code(-x, 1.0f));
    ASSERT_EQ(bnb_cuda::fast_unsigned_code(kUnsignedRanks.data(), x, 1.0f),
              bnb_cuda::unsigned_code(x, 1.0f));
  }
}

TEST(RankTable, HandlesABlockOfNaNAlone) {
  const float inverse = 1.0f / bnb_cuda::kEmptyAbsmax;
  EXPECT_EQ(bnb_cuda::fast_signed_code(kSignedRanks.data(), kNaN, inverse),
            bnb_cuda::signed_code(kNaN, inverse));
}

TEST(RankTable, HandlesAnInfiniteAbsmax) {
  for (const float moment : {0.0f, -0.0f, 1.0f, -1.0f, kInf, -kInf, kNaN, 1e-45f, -1e-45f}) {
    EXPECT_EQ(bnb_cuda::signed_code_of_infinite_absmax(moment), bnb_cuda::signed_code(moment, 0.0f))
        << moment;
    if (!(moment < 0)) {
      EXPECT_EQ(bnb_cuda::fast_unsigned_code(kUnsignedRanks.data(), moment, 0.0f),
                bnb_cuda::unsigned_code(moment, 0.0f));
    }
  }
}

TEST(SignRule, NegativeMomentsNeverTakeTheZeroCode) {
  EXPECT_EQ(bnb_cuda::signed_code(0.0f, 1.0f), 127);
  EXPECT_EQ(bnb_cuda::signed_code(1e-9f, 1.0f), 127);
  EXPECT_EQ(bnb_cuda::signed_code(-1e-9f, 1.0f), 126);
  EXPECT_EQ(bnb_cuda::signed_code(-0.0f, 1.0f), 126);
}

TEST(SignRule, AllZeroBlockWrapsTo255ForPlusZeroAnd0ForMinusZero) {
  EXPECT_EQ(bnb_cuda::signed_code(0.0f, kInf), 255);
  EXPECT_EQ(bnb_cuda::signed_code(-0.0f, kInf), 0);
  EXPECT_EQ(bnb_cuda::unsigned_code(0.0f, kInf), 0);
}

TEST(SignRule, AllZeroBlockIsStoredThatWayByAStep) {
  Shard shard(300);
  shard.step(Algorithm::AdamW, {});
  EXPECT_TRUE(std::ranges::all_of(shard.codes1, [](int code) { return code == 255; }));
  EXPECT_TRUE(std::ranges::all_of(shard.codes2, [](int code) { return code == 0; }));
  EXPECT_EQ(shard.absmax1, std::vector<float>({0.0f, 0.0f}));
}

TEST(Element, Bf16RoundsToNearestEven) {
  using Bf16 = Element<DType::bf16>;
  EXPECT_EQ(Bf16::round(1.0f), 0x3f80);
  EXPECT_EQ(Bf16::round(bits_float(0x3f808000)), 0x3f80);
  EXPECT_EQ(Bf16::round(bits_float(0x3f808001)), 0x3f81);
  EXPECT_EQ(Bf16::round(bits_float(0x3f818000)), 0x3f82);
  EXPECT_EQ(Bf16::round(3.4e38f), 0x7f80);
  EXPECT_EQ(Bf16::round(-kInf), 0xff80);
  EXPECT_TRUE(std::isnan(Bf16::to_float(Bf16::round(kNaN))));
}

TEST(Element, Fp16RoundsToNearestEvenIncludingDenormals) {
  using Fp16 = Element<DType::fp16>;
  EXPECT_EQ(Fp16::round(1.0f), 0x3c00);
  EXPECT_EQ(Fp16::round(65519.0f), 0x7bff);
  EXPECT_EQ(Fp16::round(65520.0f), 0x7c00);
  EXPECT_EQ(Fp16::round(-1e9f), 0xfc00);
  EXPECT_EQ(Fp16::round(0x1p-24f), 0x0001);
  EXPECT_EQ(Fp16::round(0x1p-25f), 0x0000);
  EXPECT_EQ(Fp16::round(0x1.8p-24f), 0x0002);
  EXPECT_EQ(Fp16::round(0x1.ffcp-15f), 0x0400);
  EXPECT_EQ(Fp16::round(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(Fp16::to_float(Fp16::round(kNaN))));
}

TEST(Element, EveryBitPatternSurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float from_bf16 = Element<DType::bf16>::to_float(half);
    const float from_fp16 = Element<DType::fp16>::to_float(half);
    if (!std::isnan(from_bf16)) {
      ASSERT_EQ(Element<DType::bf16>::round(from_bf16), half);
    }
    if (!std::isnan(from_fp16)) {
      ASSERT_EQ(Element<DType::fp16>::round(from_fp16), half);
    }
  }
}

TEST(StepScalars, BiasCorrectionFollowsTheStepsNumber) {
  const auto h = bnb_cuda::round_hyperparameters({.learning_rate = 1.0, .weight_decay = 0.0});
  for (const std::int64_t step : {1, 2, 3, 10, 1000, 100000}) {
    const auto scalars = bnb_cuda::step_scalars(h, step);
    const double c1 = 1.0 - std::pow(double{h.beta1}, static_cast<double>(step));
    const double c2 = std::sqrt(1.0 - std::pow(double{h.beta2}, static_cast<double>(step)));
    // The power is rounded to float32 before it is taken from 1: relative 2^-24 / (1 - b2^t).
    EXPECT_NEAR(scalars.step_size / (-c2 / c1), 1.0, 1e-4) << step;
  }
  EXPECT_EQ(bnb_cuda::power(0.5f, 10), 0x1p-10f);
  EXPECT_EQ(bnb_cuda::power(0.9f, 0), 1.0f);
  EXPECT_EQ(bnb_cuda::power(0.9f, std::numeric_limits<std::int64_t>::max()), 0.0f);
}

// Case B2: decay after the update gives 0.891; before it, as on CPU and in torch, 0.89.
TEST(AdamStep, DecaysAfterTheUpdate) {
  const Hyperparameters h{.learning_rate = 0.1, .weight_decay = 0.1};
  for (const auto format : {StateFormat::blockwise_8bit, StateFormat::fp32}) {
    Shard shard(1, format);
    shard.param = {1.0f};
    shard.grad = {1.0f};
    shard.step(Algorithm::AdamW, h);
    EXPECT_NEAR(shard.param[0], 0.891f, 1e-6f);
  }
}

// Case B2 on both sides: default hyperparameters would hide the difference.
TEST(ArithmeticsApart, DecayOrderOfAdamShowsOnlyAtALargeLearningRate) {
  const auto difference = [](const Hyperparameters& h) {
    Shard cpu(1, StateFormat::fp32);
    Shard cuda(1, StateFormat::fp32);
    for (Shard* shard : {&cpu, &cuda}) {
      shard->param = {1.0f};
      shard->grad = {1.0f};
      shard->step(Algorithm::AdamW, h, shard == &cpu ? step_reference : step_bnb_cuda_reference);
    }
    return cuda.param[0] - cpu.param[0];
  };
  EXPECT_NEAR(difference({.learning_rate = 0.1, .weight_decay = 0.1}), 0.001f, 1e-6f);
  EXPECT_LT(difference({}), 1e-6f);
}

// Case B5 on both sides: the code of zero does not decode to zero on CPU.
TEST(ArithmeticsApart, ZeroGradientDriftsOnCpuOnly) {
  const auto drift = [](Algorithm algorithm, int steps, Shard::Arithmetic arithmetic) {
    Shard shard(8192);
    for (std::size_t i = 1; i < shard.grad.size(); i += 2) shard.grad[i] = 1.0f;
    for (int i = 0; i < steps; ++i) {
      shard.step(algorithm, {.learning_rate = 1e-3, .weight_decay = 0.0}, arithmetic);
    }
    return shard.param[0];
  };
  EXPECT_NEAR(drift(Algorithm::AdamW, 500, step_reference), -0.00242f, 1e-5f);
  EXPECT_NEAR(drift(Algorithm::Lion, 5, step_reference), -0.004f, 1e-6f);
  EXPECT_EQ(drift(Algorithm::AdamW, 500, step_bnb_cuda_reference), 0.0f);
  EXPECT_EQ(drift(Algorithm::Lion, 5, step_bnb_cuda_reference), 0.0f);
}

// Case B6 on both sides: one Inf costs a whole block on CPU, nothing on CUDA.
TEST(ArithmeticsApart, InfiniteGradientSpoilsABlockOnCpuOnly) {
  const auto spoiled = [](Shard::Arithmetic arithmetic) {
    Shard shard(8192);
    std::ranges::fill(shard.grad, 0.01f);
    shard.grad[300] = kInf;
    for (int i = 0; i < 2; ++i) shard.step(Algorithm::AdamW, {}, arithmetic);
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < shard.param.size(); ++i) {
      if (!std::isfinite(shard.param[i])) found.push_back(i);
    }
    return found;
  };
  const std::vector<std::size_t> on_cpu = spoiled(step_reference);
  ASSERT_EQ(on_cpu.size(), 256u);
  EXPECT_EQ(on_cpu.front(), 256u);
  EXPECT_EQ(on_cpu.back(), 511u);
  EXPECT_TRUE(spoiled(step_bnb_cuda_reference).empty());
}

// Case B1: Lion's decay is decoupled and comes first.
TEST(LionStep, DecaysBeforeTheUpdate) {
  const Hyperparameters h{.learning_rate = 0.1, .beta2 = 0.99, .weight_decay = 0.1};
  for (const auto format : {StateFormat::blockwise_8bit, StateFormat::fp32}) {
    Shard shard(1, format);
    shard.param = {1.0f};
    shard.grad = {-0.05f};
    shard.step(Algorithm::Lion, h);
    EXPECT_NEAR(shard.param[0], 1.09f, 1e-6f);
  }
}

// Case B5: on CPU the same elements drift to -0.0024 and -0.004.
TEST(ZeroGradient, LeavesTheParameterExactlyAlone) {
  for (const auto algorithm : {Algorithm::AdamW, Algorithm::Lion}) {
    Shard shard(8192);
    for (std::size_t i = 1; i < shard.grad.size(); i += 2) shard.grad[i] = 1.0f;
    const int steps = algorithm == Algorithm::AdamW ? 100 : 5;
    for (int i = 0; i < steps; ++i) {
      shard.step(algorithm, {.learning_rate = 1e-3, .weight_decay = 0.0});
    }
    for (std::size_t i = 0; i < shard.param.size(); i += 2) ASSERT_EQ(shard.param[i], 0.0f) << i;
    EXPECT_LT(shard.param[1], 0.0f);
  }
}

// Case B6: Adam skips elements whose gradient is not finite, and nothing spreads from them.
TEST(NonFiniteGradient, StopsAtItsElementInAdam) {
  for (const float bad : {kInf, -kInf, kNaN}) {
    Shard shard(8192);
    Shard good(8192);
    std::ranges::fill(shard.grad, 0.01f);
    std::ranges::fill(good.grad, 0.01f);
    shard.grad[300] = bad;
    for (int i = 0; i < 2; ++i) {
      shard.step(Algorithm::AdamW, {});
      good.step(Algorithm::AdamW, {});
    }
    EXPECT_EQ(shard.param[300], 0.0f);
    for (std::size_t i = 0; i < shard.param.size(); ++i) {
      if (i != 300) {
        ASSERT_EQ(shard.param[i], good.param[i]) << i;
      }
    }
    EXPECT_EQ(shard.absmax1, good.absmax1);
  }
}

// Case B6: Lion has no guard. Inf makes the block's absmax Inf, and no parameter shows it at once.
TEST(NonFiniteGradient, GoesIntoTheAbsmaxOfLion) {
  Shard shard(8192);
  std::ranges::fill(shard.grad, 0.01f);
  shard.grad[300] = kInf;
  shard.step(Algorithm::Lion, {.beta2 = 0.99});
  EXPECT_EQ(shard.absmax1[0], 0.01f * (1.0f - 0.99f));
  EXPECT_EQ(shard.absmax1[1], kInf);
  EXPECT_TRUE(std::ranges::all_of(shard.param, [](float p) { return std::isfinite(p); }));
}

TEST(NonFiniteGradient, NaNIsSkippedByTheAbsmaxOfLion) {
  Shard shard(512);
  std::ranges::fill(shard.grad, 0.01f);
  shard.grad[300] = kNaN;
  shard.step(Algorithm::Lion, {.beta2 = 0.99});
  EXPECT_EQ(shard.absmax1[1], shard.absmax1[0]);
  EXPECT_EQ(shard.codes1[300], 255);
}

// The lanes past the end hold code 128 = 5.5e-7 of the old absmax, which shows where nothing else
// does.
TEST(Tail, MissingLanesTakePartInTheAbsmax) {
  Shard shard(257);
  shard.codes1.assign(257, 127);
  shard.absmax1 = {1000.0f, 1000.0f};
  shard.step(Algorithm::AdamW, {});
  EXPECT_EQ(shard.absmax1[0], 0.0f);
  EXPECT_EQ(shard.absmax1[1], code_value(kSignedCodeBits, 128) * 1000.0f * 0.9f);
  EXPECT_EQ(shard.codes1[0], 255);
  EXPECT_EQ(shard.codes1[256], 127);
}

// Case A10: the last block of 4097 elements has one, and its absmax is that element's.
TEST(Tail, LastBlockOfOneElementHasItsOwnScale) {
  Shard shard(4097);
  std::ranges::fill(shard.grad, 0.5f);
  shard.step(Algorithm::AdamW, {});
  EXPECT_EQ(shard.absmax1.size(), 17u);
  EXPECT_NEAR(shard.absmax1[16], 0.05, 1e-7);
  EXPECT_NEAR(shard.absmax2[16], 2.5e-4, 1e-8);
}

TEST(EmptyShard, IsLeftAlone) {
  for (const auto format : {StateFormat::blockwise_8bit, StateFormat::fp32}) {
    step_bnb_cuda_reference(Algorithm::AdamW, {}, {.numel = 0, .format = format, .step = 1});
  }
}

TEST(Reference, RefusesAMissingTensor) {
  EXPECT_THROW(step_bnb_cuda_reference(Algorithm::AdamW, {}, {.numel = 1, .step = 1}), Error);
}

/// The rule of 8-bit Adam for one block of 256, written down once more and on its own.
void adam_8bit_by_hand(Shard& s, float lr, float b1, float b2, float eps, float wd, int t) {
  const auto c1 = static_cast<float>(1.0f - static_cast<float>(std::pow(double{b1}, t)));
  const auto c2 = std::sqrt(1.0f - static_cast<float>(std::pow(double{b2}, t)));
  std::array<float, 256> m{};
  std::array<float, 256> v{};
  float top1 = 0;
  float top2 = 0;
  for (std::size_t i = 0; i < 256; ++i) {
    const float g = s.grad[i];
    m[i] = std::fma(g, 1.0f - b1, code_value(kSignedCodeBits, s.codes1[i]) * s.absmax1[0] * b1);
    v[i] = std::fma(g, (1.0f - b2) * g,
                    code_value(kUnsignedCodeBits, s.codes2[i]) * s.absmax2[0] * b2);
    top1 = std::max(top1, std::abs(m[i]));
    top2 = std::max(top2, v[i]);
    const float update = m[i] / std::fma(c2, eps, std::sqrt(v[i]));
    s.param[i] = std::fma(-lr, wd, 1.0f) * std::fma(-(c2 * lr / c1), update, s.param[i]);
  }
  for (std::size_t i = 0; i < 256; ++i) {
    int code = brute_force_nearest(kSignedCodeBits, m[i] * (1.0f / top1));
    if (code == 127 && m[i] < 0) code = 126;
    s.codes1[i] = static_cast<std::uint8_t>(code);
    s.codes2[i] = brute_force_nearest(kUnsignedCodeBits, v[i] * (1.0f / top2));
  }
  s.absmax1[0] = top1;
  s.absmax2[0] = top2;
}

TEST(AdamStep, FollowsTheRuleWrittenOutByHand) {
  Shard shard(256);
  Shard by_hand(256);
  std::mt19937 random = seeded(3);
  std::normal_distribution<float> normal;
  for (float& p : shard.param) p = normal(random);
  by_hand.param = shard.param;
  for (int t = 1; t <= 20; ++t) {
    for (float& g : shard.grad) g = normal(random) * 0.1f;
    by_hand.grad = shard.grad;
    shard.step(Algorithm::AdamW, {.learning_rate = 0.05, .weight_decay = 0.2});
    adam_8bit_by_hand(by_hand, 0.05f, 0.9f, 0.999f, 1e-8f, 0.2f, t);
    ASSERT_EQ(shard.param, by_hand.param) << t;
    ASSERT_EQ(shard.codes1, by_hand.codes1) << t;
    ASSERT_EQ(shard.codes2, by_hand.codes2) << t;
    ASSERT_EQ(shard.absmax1, by_hand.absmax1) << t;
    ASSERT_EQ(shard.absmax2, by_hand.absmax2) << t;
  }
}

}  // namespace
}  // namespace stepscope::kernels
