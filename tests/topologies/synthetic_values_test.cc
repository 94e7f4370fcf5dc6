#include "topologies/synthetic_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "kernels/element.h"

namespace stepscope::topologies {
namespace {

using kernels::DType;
using Fill = void (*)(DType, void*, std::uint64_t, std::int64_t, std::int64_t);

std::vector<float> values(Fill fill, DType dtype, std::uint64_t parameter, std::int64_t first,
                          std::int64_t count) {
  std::vector<float> result(static_cast<std::size_t>(count));
  if (dtype == DType::fp32) {
    fill(dtype, result.data(), parameter, first, count);
    return result;
  }
  std::vector<std::uint16_t> bits(result.size());
  fill(dtype, bits.data(), parameter, first, count);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    result[i] = dtype == DType::bf16 ? kernels::Element<DType::bf16>::to_float(bits[i])
                                     : kernels::Element<DType::fp16>::to_float(bits[i]);
  }
  return result;
}

TEST(SyntheticValues, DependOnThePlaceInTheParameterAndNotOnTheShard) {
  const auto whole = values(fill_parameter, DType::fp32, 3, 0, 1000);
  const auto part = values(fill_parameter, DType::fp32, 3, 257, 100);
  EXPECT_EQ(std::vector<float>(whole.begin() + 257, whole.begin() + 357), part);
}

TEST(SyntheticValues, AreTheSameNumbersInEveryDataType) {
  for (const Fill fill : {fill_parameter, fill_gradient}) {
    const auto fp32 = values(fill, DType::fp32, 1, 0, 5000);
    EXPECT_EQ(fp32, values(fill, DType::bf16, 1, 0, 5000));
    EXPECT_EQ(fp32, values(fill, DType::fp16, 1, 0, 5000));
  }
}

TEST(SyntheticValues, DifferBetweenParametersAndBetweenParameterAndGradient) {
  const auto first = values(fill_parameter, DType::fp32, 0, 0, 1000);
  EXPECT_NE(first, values(fill_parameter, DType::fp32, 1, 0, 1000));
  EXPECT_NE(first, values(fill_gradient, DType::fp32, 0, 0, 1000));
  EXPECT_GT(std::set<float>(first.begin(), first.end()).size(), 500U);
}

TEST(SyntheticValues, StayInTheirRangeAndOneGradientInSixteenIsZero) {
  constexpr std::int64_t kCount = 16000;
  int zeros = 0;
  for (const float value : values(fill_gradient, DType::fp32, 9, 0, kCount)) {
    if (value == 0) {
      ++zeros;
    } else {
      EXPECT_GE(std::abs(value), 0x1p-13F);
      EXPECT_LT(std::abs(value), 0x1p-5F);
    }
  }
  EXPECT_NEAR(zeros, static_cast<double>(kCount) / 16, 150);
  for (const float value : values(fill_parameter, DType::fp32, 9, 0, kCount)) {
    EXPECT_GE(std::abs(value), 0x1p-9F);
    EXPECT_LT(std::abs(value), 0x1p-3F);
  }
}

}  // namespace
}  // namespace stepscope::topologies
