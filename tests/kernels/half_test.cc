#include "kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stepscope::kernels {
namespace {

TEST(Half, EveryValueOf16BitsSurvivesTheWayToFloatAndBack) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    if (!std::isnan(bf16_to_float(bits))) {
      ASSERT_EQ(float_to_bf16(bf16_to_float(bits)), bits) << i;
    }
    if (!std::isnan(fp16_to_float(bits))) {
      ASSERT_EQ(float_to_fp16(fp16_to_float(bits)), bits) << i;
    }
  }
}

TEST(Half, MidpointsRoundToTheEvenNeighbourAndOthersToTheNearer) {
  for (std::uint32_t i = 0; i + 1 < 0x7c00; ++i) {  // positive finite fp16 and their successors
    const float low = fp16_to_float(static_cast<std::uint16_t>(i));
    const float high =
        i + 1 == 0x7c00 ? 65536.0f : fp16_to_float(static_cast<std::uint16_t>(i + 1));
    const float middle = (low + high) / 2;
    const std::uint32_t even = i % 2 == 0 ? i : i + 1;
    ASSERT_EQ(float_to_fp16(middle), even) << i;
    ASSERT_EQ(float_to_fp16(-middle), even | 0x8000u) << i;
    ASSERT_EQ(float_to_fp16(std::nextafter(middle, low)), i);
    ASSERT_EQ(float_to_fp16(std::nextafter(middle, high)), i + 1);
  }
  for (std::uint32_t i = 0; i + 1 < 0x7f80; ++i) {
    const std::uint32_t middle = i << 16 | 0x8000u;
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle)), i % 2 == 0 ? i : i + 1);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle - 1)), i);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle + 1)), i + 1);
  }
}

TEST(Half, WhatIsTooLargeBecomesInfinityAndNanStaysNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_fp16(65519.0f), 0x7bffu);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00u);
  EXPECT_EQ(float_to_fp16(-kInf), 0xfc00u);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80u);
  EXPECT_EQ(float_to_bf16(kInf), 0x7f80u);
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(bits)))));
    EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(std::bit_cast<float>(bits)))));
  }
}

}  // namespace
}  // namespace stepscope::kernels
