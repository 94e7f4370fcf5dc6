// The statistics of a comparison against published tables and counts by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "results/comparison/chi_square.h"
#include "results/comparison/holm.h"
#include "results/comparison/mann_whitney.h"
#include "results/comparison/runs_to_settle.h"
#include "results/comparison/student_t.h"
#include "results/comparison/time_ratio.h"

namespace stepscope::results {
namespace {

TEST(StudentT, CriticalValuesAreThoseOfTheTables) {
  EXPECT_NEAR(student_t_critical(0.05, 1), 12.7062, 5e-5);
  EXPECT_NEAR(student_t_critical(0.05, 4), 2.77645, 5e-6);
  EXPECT_NEAR(student_t_critical(0.01, 9), 3.24984, 5e-6);
  EXPECT_NEAR(student_t_critical(0.01, 1e6), 2.57583, 5e-5);
  EXPECT_NEAR(student_t_two_sided(student_t_critical(0.02, 7.5), 7.5), 0.02, 1e-12);
}

TEST(StudentT, PValuesOfOneDegreeOfFreedomAreThoseOfCauchy) {
  constexpr double kPi = 3.14159265358979323846;
  for (const double t : {0.0, 0.1, 1.0, -1.0, 3.0, 1e6}) {
    EXPECT_NEAR(student_t_two_sided(t, 1), 1 - 2 / kPi * std::atan(std::fabs(t)), 1e-12);
  }
  EXPECT_EQ(student_t_two_sided(INFINITY, 3), 0);
}

TEST(ChiSquare, QuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(chi_square_quantile(0.1, 1), 0.01579, 5e-6);
  EXPECT_NEAR(chi_square_quantile(0.1, 2), 0.21072, 5e-6);
  EXPECT_NEAR(chi_square_quantile(0.5, 10), 9.34182, 5e-6);
  EXPECT_NEAR(chi_square_quantile(0.95, 3), 7.81473, 5e-6);
  EXPECT_NEAR(chi_square_quantile(0.1, 100), 82.3581, 5e-5);
  EXPECT_NEAR(chi_square_quantile(0.95, 1000), 1074.68, 0.02);  // approximated
  // Of two degrees of freedom it is an exponential distribution.
  EXPECT_NEAR(chi_square_quantile(0.3, 2), -2 * std::log(0.7), 1e-12);
}

TEST(Holm, CorrectsEachByTheNumberStillOpen) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005, 0.9};
  const std::vector<double> expected = {0.04, 0.09, 0.09, 0.025, 0.9};
  const std::vector<double> corrected = holm(p);
  ASSERT_EQ(corrected.size(), p.size());
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(corrected[i], expected[i], 1e-12);
  EXPECT_TRUE(holm({}).empty());
  EXPECT_EQ(holm(std::vector<double>{0.9, 0.8}), (std::vector<double>{1, 1}));
}

TEST(MannWhitney, CountsArrangementsOfSmallSides) {
  const std::vector<double> low = {1, 2, 3};
  const std::vector<double> high = {4, 5, 6};
  EXPECT_NEAR(*mann_whitney_two_sided(low, high), 0.1, 1e-12);  // 2 of 20
  EXPECT_NEAR(*mann_whitney_two_sided(high, low), 0.1, 1e-12);
  EXPECT_EQ(mann_whitney_two_sided(low, std::vector<double>{1}), std::nullopt);
  EXPECT_EQ(mann_whitney_two_sided(std::vector<double>{1, 1}, std::vector<double>{1, 1}), 1.0);
}

TEST(RatioOfRuns, IsWelchsTestOnLogarithms) {
  // ln: 0, 2, 4 against 5, 6, 10; variances 4 and 7; error sqrt(11 / 3), t = 5 / 1.91485.
  const auto exp_of = [](std::vector<double> values) {
    for (double& value : values) value = std::exp(value);
    return values;
  };
  const TimeRatio ratio =
      ratio_of_runs(exp_of({0, 2, 4}), exp_of({5, 6, 10}), LaunchOrder::in_turn);
  EXPECT_NEAR(std::log(ratio.ratio), 5, 1e-12);
  const double error = std::sqrt(11.0 / 3);
  const double freedom = (11.0 / 3) * (11.0 / 3) / (16.0 / 9 / 2 + 49.0 / 9 / 2);
  EXPECT_NEAR(*ratio.p_value, student_t_two_sided(5 / error, freedom), 1e-12);
  EXPECT_NEAR(std::log(*ratio.low), 5 - error * student_t_critical(kAlpha, freedom), 1e-9);
  EXPECT_NEAR(std::log(*ratio.high), 5 + error * student_t_critical(kAlpha, freedom), 1e-9);
  EXPECT_NEAR(*ratio.spread, std::sqrt(5.5), 1e-12);
}

TEST(RatioOfRuns, HasNoIntervalWithoutASpread) {
  const TimeRatio one =
      ratio_of_runs(std::vector<double>{10}, std::vector<double>{20, 21}, LaunchOrder::in_turn);
  EXPECT_FALSE(one.low || one.high || one.p_value || one.spread);
  const TimeRatio equal =
      ratio_of_runs(std::vector<double>{5, 5}, std::vector<double>{5, 5}, LaunchOrder::in_turn);
  EXPECT_EQ(equal.p_value, 1);
  EXPECT_EQ(equal.ratio, 1);
  const TimeRatio exact =
      ratio_of_runs(std::vector<double>{5, 5}, std::vector<double>{6, 6}, LaunchOrder::in_turn);
  EXPECT_EQ(exact.p_value, 0);
  const TimeRatio other =
      ratio_of_runs(std::vector<double>{20, 21}, std::vector<double>{10}, LaunchOrder::in_turn);
  EXPECT_FALSE(other.low || other.high || other.p_value || other.spread);
  const TimeRatio pair = ratio_of_pairs(std::vector<double>{10}, std::vector<double>{20});
  EXPECT_FALSE(pair.low || pair.high || pair.p_value || pair.spread);
}

TEST(RatioOfRuns, WeighsSidesByTheirOwnNumbersOfRuns) {
  // ln: 0, 2, 4 with a variance of 4; 5, 6 of 0.5: error^2 = 4 / 3 + 0.25.
  const std::vector<double> base = {1, std::exp(2.0), std::exp(4.0)};
  const std::vector<double> fresh = {std::exp(5.0), std::exp(6.0)};
  const TimeRatio ratio = ratio_of_runs(base, fresh, LaunchOrder::in_turn);
  const double both = 4.0 / 3 + 0.25;
  const double freedom = both * both / (16.0 / 9 / 2 + 0.0625);
  EXPECT_NEAR(*ratio.p_value, student_t_two_sided(3.5 / std::sqrt(both), freedom), 1e-12);
}

TEST(RatioOfPairs, IsStudentsTestOnTheirLogarithms) {
  // Differences of ln: 1, 2, 6; variance 7, two degrees of freedom.
  const std::vector<double> base = {1, 1, 1};
  const std::vector<double> fresh = {std::exp(1.0), std::exp(2.0), std::exp(6.0)};
  const TimeRatio ratio = ratio_of_pairs(base, fresh);
  const double error = std::sqrt(7.0 / 3);
  EXPECT_NEAR(*ratio.p_value, student_t_two_sided(3 / error, 2), 1e-12);
  EXPECT_NEAR(std::log(*ratio.low), 3 - error * student_t_critical(kAlpha, 2), 1e-9);
}

TEST(RatioOfRuns, TakesNeighboursAsOneWhereTheSidesWereNotLaunchedInTurn) {
  std::vector<double> base;
  std::vector<double> fresh;
  std::vector<double> base_means;
  std::vector<double> new_means;
  for (const double phase : {1.0, 1.3, 1.1, 1.2}) {
    for (const double luck : {0.99, 1.01, 1.0, 1.0}) {
      base.push_back(phase * luck);
      fresh.push_back(1.25 * phase * luck);
    }
    base_means.push_back(phase * std::pow(0.99 * 1.01, 0.25));
    new_means.push_back(1.25 * base_means.back());
  }
  const auto in_turn = ratio_of_runs(base, fresh, LaunchOrder::in_turn);
  const auto apart = ratio_of_runs(base, fresh, LaunchOrder::one_side_after_the_other);
  // 16 runs are four groups of four: as if each group were one run.
  const auto groups = ratio_of_runs(base_means, new_means, LaunchOrder::in_turn);
  EXPECT_NEAR(apart.ratio, 1.25, 1e-12);
  EXPECT_NEAR(*apart.p_value, *groups.p_value, 1e-9);
  EXPECT_LT(*in_turn.p_value, 0.001);
  EXPECT_GT(*apart.p_value, 0.01);
  EXPECT_EQ(apart.spread, in_turn.spread);
}

TEST(MeansOfNeighbours, AreAtLeastThreeOrTheValuesThemselves) {
  const auto of = [](std::vector<double> values) { return means_of_neighbours(values); };
  EXPECT_EQ(of({7, 9}), (std::vector<double>{7, 9}));
  EXPECT_EQ(of({1, 2, 3}), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(of({1, 2, 4, 5, 9}), (std::vector<double>{1, 3, 7}));
  EXPECT_EQ(of(std::vector<double>(20, 1)).size(), 4U);
  EXPECT_EQ(of({}), std::vector<double>());
}

TEST(LaunchOrderOf, IsInTurnWhereTheSideChangesAtLeastWithEveryThirdRun) {
  const auto order = [](const std::string& sides) {
    std::vector<std::string> base;
    std::vector<std::string> fresh;
    std::string time = "2026-12-01T17:15:00Z";
    for (const char side : sides) {
      (side == 'a' ? base : fresh).push_back(time);
      ++time[15];
    }
    return launch_order(base, fresh);
  };
  const auto apart = LaunchOrder::one_side_after_the_other;
  EXPECT_EQ(order("abab"), LaunchOrder::in_turn);
  EXPECT_EQ(order("baabba"), LaunchOrder::in_turn);
  EXPECT_EQ(order("aabbaabb"), LaunchOrder::in_turn);
  EXPECT_EQ(order("aaabbb"), apart);
  EXPECT_EQ(order("bbbbaaaa"), apart);
  EXPECT_EQ(order("aaaaabbbbb"), apart);
  EXPECT_EQ(order("abbbbbaaa"), LaunchOrder::in_turn);
  EXPECT_EQ(order("abbbbbbaaa"), apart);
  EXPECT_EQ(launch_order({"2026", "2028"}, {"2027", ""}), apart);
  EXPECT_EQ(launch_order({"2026", "2026"}, {"2026", "2026"}), apart);
}

TEST(RatioOfPairs, TakesOutWhatBothOfAPairSaw) {
  const std::vector<double> base = {10, 100, 1000};
  const std::vector<double> fresh = {11, 111, 1090};
  const TimeRatio pairs = ratio_of_pairs(base, fresh);
  EXPECT_NEAR(pairs.ratio, 1.1, 1e-3);
  EXPECT_LT(*pairs.p_value, 0.01);
  EXPECT_GT(*ratio_of_runs(base, fresh, LaunchOrder::in_turn).p_value, 0.9);
}

TEST(CautiousSpread, IsTheUpperLimitOfTheSpread) {
  // The 10 % quantiles of chi squared: 0.21072 with 2 degrees of freedom, 10.8649 with 18.
  EXPECT_NEAR(cautious_spread(0.1, 18), 0.1 * std::sqrt(18 / 10.8649), 1e-6);
  EXPECT_NEAR(cautious_spread(0.1, 2), 0.1 * std::sqrt(2 / 0.21072), 1e-5);
  EXPECT_NEAR(cautious_spread(0.1, 1'000'000), 0.1, 1e-3);
  EXPECT_EQ(cautious_spread(0, 3), 0);
}

TEST(RunsNeeded, FallWithTheEffectAndRiseWithTheSpread) {
  // Normal approximation for many runs: 2 (2.5758 + 1.2816)^2 s^2 / effect^2 = 297.6.
  EXPECT_NEAR(static_cast<double>(*runs_needed(0.1, 0.1 / std::sqrt(10.0), 1, false)), 299, 3);
  EXPECT_NEAR(static_cast<double>(*runs_needed(0.1, 0.1 / std::sqrt(10.0), 1, true)), 152, 4);
  EXPECT_GT(*runs_needed(0.1, 0.05, 20, false), *runs_needed(0.1, 0.05, 1, false));
  EXPECT_EQ(runs_needed(1, 1e-6, 1, false), std::nullopt);
  EXPECT_EQ(runs_needed(0, 0.1, 1, true), 2);
}

// Spread and change are as good as known where there are a million of degrees of freedom and runs;
// then the normal distribution gives the numbers: 2.5758 for p = 0.01, 0.8416 and 1.2816 for 80 %
// beyond one limit and between two.
constexpr std::int64_t kMany = 1'000'000;

TEST(RunsToSettle, TellAChangeFromNone) {
  // 2 (2.5758 + 0.8416)^2 s^2 / change^2 = 259.5.
  const UncertainTime time = {
      .change = 0.3, .spread = 1, .have = kMany, .freedom = kMany, .kept = false};
  EXPECT_NEAR(static_cast<double>(*runs_to_settle(time)), 261, 2);
  UncertainTime other = time;
  other.change = -0.3;
  EXPECT_EQ(runs_to_settle(other), runs_to_settle(time));
  other.paired = true;
  EXPECT_NEAR(static_cast<double>(*runs_to_settle(other)), 133, 2);
  other.benchmarks = 10;  // 3.2905 for p = 0.001
  EXPECT_NEAR(static_cast<double>(*runs_to_settle(other)), 193, 3);
}

TEST(RunsToSettle, TellASmallChangeFromTheThreshold) {
  // 2 (2.5758 + 1.2816)^2 s^2 / threshold^2 = 340.6.
  const UncertainTime time = {
      .change = 0, .spread = 0.1, .have = kMany, .freedom = kMany, .kept = false};
  EXPECT_NEAR(static_cast<double>(*runs_to_settle(time)), 342, 2);
  UncertainTime other = time;
  other.benchmarks = 10;  // "same" is said of each benchmark alone
  EXPECT_EQ(runs_to_settle(other), runs_to_settle(time));
  other.threshold = 0.1;
  EXPECT_LT(*runs_to_settle(other), 40);
}

TEST(RunsToSettle, AreFewerWhereThoseSoFarCount) {
  // Solved with the normal distribution for error = s sqrt(2 / all) and the part of the new ones,
  // shift = s sqrt(2 added / (all 100)): of no change, 3 % lie beyond the threshold by luck.
  UncertainTime time = {.change = 0, .spread = 0.1, .have = 100, .freedom = kMany};
  EXPECT_NEAR(static_cast<double>(*runs_to_settle(time)), 618, 3);
  time.change = 0.3;
  time.spread = 1;
  EXPECT_NEAR(static_cast<double>(*runs_to_settle(time)), 230, 3);
}

TEST(RunsToSettle, AreMoreWhereLittleIsKnown) {
  const UncertainTime known = {.change = 0.1, .spread = 0.05, .have = 3, .freedom = kMany};
  UncertainTime few = known;
  few.freedom = 2;
  EXPECT_GT(*runs_to_settle(few), *runs_to_settle(known));
  EXPECT_GE(*runs_to_settle({.change = 0.0295, .spread = 1e-9}), 1);
  // The least that can be said: one more, or, where those so far do not count, two.
  EXPECT_EQ(runs_to_settle({.spread = 1e-9}), 1);
  EXPECT_EQ(runs_to_settle({.spread = 1e-9, .kept = false}), 2);
  // At the threshold itself, with the spread and the change as good as known, nothing settles.
  const UncertainTime at = {
      .change = std::log1p(0.03), .spread = 0.05, .have = 1000, .freedom = kMany};
  EXPECT_EQ(runs_to_settle(at), std::nullopt);
}

}  // namespace
}  // namespace stepscope::results
