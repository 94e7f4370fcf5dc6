#include "kernels/constant_division.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/bnb_cpu.h"

namespace stepscope::kernels {
namespace {

constexpr std::uint64_t kLeast = std::uint64_t{1} << 23;  // significands of float32 as integers
constexpr std::uint64_t kEnd = 2 * kLeast;

/// The inverse of an odd number modulo 2^64.
std::uint64_t inverse_of_odd(std::uint64_t odd) {
  std::uint64_t inverse = odd;  // right in the three lowest bits; each round doubles them
  for (int round = 0; round < 5; ++round) inverse *= 2 - odd * inverse;
  return inverse;
}

/// Calls `visit` with each significand X for which X * 2^s lies within 5 of an odd 25-bit multiple
/// of C, s = 24 or 25: the only dividends whose quotient is near enough to the middle of two
/// numbers.
template <class Visit>
void for_each_hard_dividend(std::uint64_t c, Visit visit) {
  const int zeros = std::countr_zero(c);
  const std::uint64_t inverse = inverse_of_odd(c >> zeros);
  for (const int s : {24, 25}) {
    const std::uint64_t modulus = std::uint64_t{1} << std::max(0, s - zeros);
    for (std::int64_t r = -5; r <= 5; ++r) {
      // X * 2^s - M * C = r, so 2^zeros divides r; what is left fixes M modulo 2^(s - zeros).
      if (r == 0 || r % (std::int64_t{1} << zeros) != 0) continue;
      const auto reduced = static_cast<std::uint64_t>(-(r / (std::int64_t{1} << zeros)));
      for (std::uint64_t m = (reduced * inverse) & (modulus - 1); m < 2 * kEnd; m += modulus) {
        if (m < kEnd || m % 2 == 0) continue;
        const std::uint64_t x = (m * c + static_cast<std::uint64_t>(r)) >> s;
        if (x >= kLeast && x < kEnd) visit(x);
      }
    }
  }
}

TEST(DivideByConstant, IsExactForTheHardDividendsOfEveryDivisor) {
  std::int64_t tried = 0;
  for (std::uint64_t c = kLeast; c < kEnd; ++c) {
    const auto divisor = static_cast<float>(c);
    const float reciprocal = 1.0f / divisor;
    for_each_hard_dividend(c, [&](std::uint64_t significand) {
      ++tried;
      const auto x = static_cast<float>(significand);
      ASSERT_EQ(divide_by_constant(x, divisor, reciprocal), x / divisor) << c << " " << significand;
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(tried, 10'000'000);
}

TEST(DivideByConstant, IsExactForEveryDividendOfSomeDivisors) {
  const float all_ones = std::bit_cast<float>(0x3f7fffffu);
  for (const float divisor : {adamw_8bit_coefficients({}, 1).correction2,
                              adamw_8bit_coefficients({}, 1000).correction2, all_ones}) {
    const float reciprocal = 1.0f / divisor;
    for (std::uint64_t significand = kLeast; significand < kEnd; ++significand) {
      const auto x = static_cast<float>(significand);
      ASSERT_EQ(divide_by_constant(x, divisor, reciprocal), x / divisor) << divisor << " " << x;
    }
  }
}

TEST(DivideByConstant, IsExactAtTheEndsOfTheRangeItIsUsedIn) {
  const float least_root = std::sqrt(std::bit_cast<float>(1u));
  const float largest_root = std::sqrt(std::bit_cast<float>(0x7f7fffffu));
  for (const float divisor : {0x1p-27f, 0x1.6a09e6p-27f, 0.03162277f, 1.0f}) {
    for (const float x : {0.0f, least_root, std::nextafter(least_root, 1.0f), 1.0f, largest_root}) {
      EXPECT_EQ(divide_by_constant(x, divisor, 1.0f / divisor), x / divisor) << x << " " << divisor;
    }
  }
}

}  // namespace
}  // namespace stepscope::kernels
