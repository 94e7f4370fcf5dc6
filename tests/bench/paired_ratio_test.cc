#include "bench/paired_ratio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "core/error.h"

namespace stepscope::bench {
namespace {

TEST(PairedRatio, IsOfPairsAndNotOfMedians) {
  // The machine was ten times slower in the second pair: that cancels.
  const PairedRatio ratio = paired_ratio(std::vector<std::int64_t>{300, 3000, 150},
                                         std::vector<std::int64_t>{200, 2000, 100});
  EXPECT_EQ(ratio.median, 1.5);
  EXPECT_EQ(ratio.low, 1.5);
  EXPECT_EQ(ratio.high, 1.5);
}

TEST(PairedRatio, FewPairsHaveTheWholeRangeAsTheirInterval) {
  const PairedRatio ratio =
      paired_ratio(std::vector<std::int64_t>{4, 1, 3, 2}, std::vector<std::int64_t>{1, 1, 1, 1});
  EXPECT_EQ(ratio.median, 2.5);
  EXPECT_EQ(ratio.low, 1);
  EXPECT_EQ(ratio.high, 4);
}

TEST(PairedRatio, TheIntervalIsTheKnownOneOfOrderStatistics) {
  // Of 100 independent values the 40th and the 61st enclose the median with 96.5 %.
  std::vector<std::int64_t> above(100);
  std::iota(above.begin(), above.end(), std::int64_t{1});
  const PairedRatio ratio = paired_ratio(above, std::vector<std::int64_t>(100, 1));
  EXPECT_EQ(ratio.median, 50.5);
  EXPECT_EQ(ratio.low, 40);
  EXPECT_EQ(ratio.high, 61);
}

TEST(PairedRatio, TheIntervalHoldsTheMedianInAboutNineteenOfTwentyTries) {
  for (const std::size_t pairs : {10U, 11U, 25U, 60U, 101U}) {
    std::mt19937 random(7);
    int held = 0;
    constexpr int kTries = 4000;
    for (int i = 0; i < kTries; ++i) {
      std::vector<std::int64_t> above;
      for (std::size_t k = 0; k < pairs; ++k) {
        // A value below 1,000,000 and one above are as likely.
        above.push_back(1 + static_cast<std::int64_t>(random() % 2'000'000));
      }
      const auto ratio = paired_ratio(above, std::vector<std::int64_t>(pairs, 1'000'000));
      if (ratio.low <= 1 && 1 <= ratio.high) ++held;
    }
    EXPECT_GE(held, kTries * 94 / 100) << pairs << " pairs";
    EXPECT_LE(held, kTries * 999 / 1000) << pairs << " pairs";
  }
}

TEST(PairedRatio, TimesWithoutAPartnerAreAnError) {
  EXPECT_THROW(paired_ratio(std::vector<std::int64_t>{1}, std::vector<std::int64_t>{}), Error);
  EXPECT_THROW(paired_ratio(std::vector<std::int64_t>{}, std::vector<std::int64_t>{}), Error);
}

}  // namespace
}  // namespace stepscope::bench
