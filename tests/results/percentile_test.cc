#include "results/percentile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "core/error.h"

namespace stepscope::results {
namespace {

using Samples = std::vector<std::int64_t>;

Samples range(std::int64_t first, std::int64_t last) {
  Samples samples(static_cast<std::size_t>(last - first + 1));
  std::iota(samples.begin(), samples.end(), first);
  return samples;
}

TEST(Percentile, OfNothingIsNothing) { EXPECT_EQ(percentile(Samples{}, 50), std::nullopt); }

TEST(Percentile, OfOneSampleIsThatSample) {
  for (const int percent : {0, 1, 50, 99, 100}) EXPECT_EQ(percentile(Samples{42}, percent), 42);
}

TEST(Percentile, AtWholeRanksIsTheSampleItself) {
  // Where an index taken through floating point is off by one: 7 / 100 * 100 is 7.000000000000001.
  for (int percent = 0; percent <= 100; ++percent) {
    EXPECT_EQ(percentile(range(0, 100), percent), percent);
    EXPECT_EQ(percentile(range(0, 1000), percent), 10 * percent);
  }
}

TEST(Percentile, InterpolatesBetweenNeighbours) {
  EXPECT_EQ(percentile(Samples{10, 20, 30}, 99), 30);  // 29.8
  EXPECT_EQ(percentile(range(0, 19), 95), 18);         // 18.05
  EXPECT_EQ(percentile(range(1, 10), 90), 9);          // 9.1
  EXPECT_EQ(percentile(range(1, 100), 7), 8);          // 7.93
  EXPECT_EQ(percentile(range(1, 100), 99), 99);        // 99.01
  EXPECT_EQ(percentile(Samples{0, 1000}, 37), 370);    // exact
  EXPECT_EQ(percentile(Samples{100, 200, 400}, 75), 300);
}

TEST(Percentile, RoundsTiesToEven) {
  EXPECT_EQ(percentile(Samples{0, 1}, 50), 0);
  EXPECT_EQ(percentile(Samples{1, 2}, 50), 2);
  EXPECT_EQ(percentile(Samples{2, 3}, 50), 2);
  EXPECT_EQ(percentile(Samples{-1, 0}, 50), 0);
  EXPECT_EQ(percentile(Samples{-2, -1}, 50), -2);
  EXPECT_EQ(percentile(Samples{-3, -2}, 50), -2);
}

TEST(Percentile, NeedsNoOrderAndKeepsTheOneGiven) {
  const Samples samples = {30, 10, 20, 50, 40};
  EXPECT_EQ(percentile(samples, 25), 20);
  EXPECT_EQ(samples, (Samples{30, 10, 20, 50, 40}));
}

TEST(Percentile, IsExactAtTheBordersOf64Bits) {
  const Samples ends = {INT64_MIN, INT64_MAX};
  EXPECT_EQ(percentile(ends, 0), INT64_MIN);
  EXPECT_EQ(percentile(ends, 50), 0);  // -0.5
  EXPECT_EQ(percentile(ends, 100), INT64_MAX);
  // A double would give ...904 for all of these.
  EXPECT_EQ(percentile(Samples{INT64_MAX - 10, INT64_MAX}, 30), INT64_MAX - 7);
}

TEST(Percentile, RefusesPercentsThatDoNotExist) {
  EXPECT_THROW(percentile(Samples{1}, -1), Error);
  EXPECT_THROW(percentile(Samples{1}, 101), Error);
}

TEST(Percentile, IsTheWholeNumberNearestToNumPys) {
  std::ifstream in(STEPSCOPE_RESULTS_TESTS "/percentile_cases.json");
  const nlohmann::json cases = nlohmann::json::parse(in);
  ASSERT_GE(cases.size(), 500u);
  for (const nlohmann::json& one : cases) {
    const auto samples = one.at("samples").get<Samples>();
    const int percent = one.at("percent").get<int>();
    const std::optional<std::int64_t> value = percentile(samples, percent);
    ASSERT_TRUE(value.has_value());
    EXPECT_EQ(*value, one.at("whole").get<std::int64_t>());  // the same as results/percentile.py
    // Samples stay below 2^40, where NumPy's doubles err by less than 0.001.
    EXPECT_LE(std::abs(static_cast<double>(*value) - one.at("numpy").get<double>()), 0.501)
        << "n = " << samples.size() << ", percent = " << percent;
  }
}

}  // namespace
}  // namespace stepscope::results
