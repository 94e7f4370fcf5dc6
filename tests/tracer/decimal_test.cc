#include "tracer/decimal.h"

#include <gtest/gtest.h>

#include <limits>

namespace stepscope::tracer {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Decimal, MicrosecondsBecomeExactNanoseconds) {
  EXPECT_EQ(scaled_decimal("0", 3), 0);
  EXPECT_EQ(scaled_decimal("-0.001", 3), -1);
  EXPECT_EQ(scaled_decimal("4458676522690.655", 3), 4'458'676'522'690'655);
  // A double between 2^60 and 2^61 knows multiples of 256 alone.
  EXPECT_EQ(scaled_decimal("1712867402348256.123", 3), 1'712'867'402'348'256'123);
  EXPECT_EQ(scaled_decimal("1712867402348256.124", 3), 1'712'867'402'348'256'124);
  EXPECT_EQ(scaled_decimal("1.712867402348256123e15", 3), 1'712'867'402'348'256'123);
  EXPECT_EQ(scaled_decimal("5E-3", 3), 5);
  EXPECT_EQ(scaled_decimal("12e+2", 3), 1'200'000);
}

TEST(Decimal, RoundsWhatIsFinerThanANanosecond) {
  EXPECT_EQ(scaled_decimal("1.0004999", 3), 1'000);
  EXPECT_EQ(scaled_decimal("1.0005", 3), 1'001);
  EXPECT_EQ(scaled_decimal("-1.0005", 3), -1'001);
  EXPECT_EQ(scaled_decimal("0.0005", 3), 1);
  EXPECT_EQ(scaled_decimal("0.00049", 3), 0);
  EXPECT_EQ(scaled_decimal("9e-4", 3), 1);
  EXPECT_EQ(scaled_decimal("9e-5", 3), 0);
  EXPECT_EQ(scaled_decimal("9e-99999", 3), 0);
}

TEST(Decimal, SaysWhatDoesNotFit) {
  EXPECT_EQ(scaled_decimal("9223372036854775.807", 3), kMax);
  EXPECT_EQ(scaled_decimal("9223372036854775.8074", 3), kMax);
  EXPECT_FALSE(scaled_decimal("9223372036854775.8075", 3));
  EXPECT_FALSE(scaled_decimal("9223372036854775.808", 3));
  EXPECT_FALSE(scaled_decimal("1e300", 3));
  EXPECT_FALSE(scaled_decimal("1e99999999999999999999", 3));
  EXPECT_FALSE(scaled_decimal(std::string(400, '9'), 3));
  EXPECT_EQ(scaled_decimal("0e300", 3), 0);
}

TEST(Decimal, WholeNumbersAreWhole) {
  EXPECT_EQ(whole_number("-5"), -5);
  EXPECT_EQ(whole_number("9223372036854775807"), kMax);
  EXPECT_EQ(whole_number("18446744073709551615"), -1);
  for (const char* text : {"", "1.5", "1e3", "18446744073709551616", "x"}) {
    EXPECT_FALSE(whole_number(text)) << text;
  }
}

}  // namespace
}  // namespace stepscope::tracer
