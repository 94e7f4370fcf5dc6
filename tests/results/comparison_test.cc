// compare() on runs in memory: what no file is needed for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "results/comparison/compare.h"
#include "results/comparison/runs_to_settle.h"
#include "results/comparison/time_ratio.h"
#include "results/comparison/write_comparison.h"

namespace stepscope::results {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// A run with one benchmark.
MeasuredRun run_of(double p50_ns, std::size_t minute = 0) {
  MeasuredRun run;
  run.started = std::to_string(1'000'000 + minute);
  BenchmarkRun& benchmark = find_or_add_benchmark(run, "BM");
  benchmark.p50_ns = p50_ns;
  return run;
}

/// Runs of a side that sits on both sides of `ns`, by `luck`, and was launched in turn with
/// another.
std::vector<MeasuredRun> around(double ns, double luck, std::size_t count, bool fresh) {
  std::vector<MeasuredRun> runs;
  for (std::size_t i = 0; i < count; ++i) {
    runs.push_back(run_of(ns * (i % 2 == 0 ? 1 + luck : 1 / (1 + luck)), 2 * i + (fresh ? 1 : 0)));
  }
  return runs;
}

std::vector<MeasuredRun> base_of(double ns, std::size_t count = 4) {
  return around(ns, 0.001, count, false);
}

std::vector<MeasuredRun> new_of(double ns, std::size_t count = 4) {
  return around(ns, 0.001, count, true);
}

BenchmarkRun& only(MeasuredRun& run) { return run.benchmarks.front(); }

/// Sets a member of every run's benchmark, one value a run; the last goes on.
template <typename T>
std::vector<MeasuredRun> with(std::vector<MeasuredRun> runs, T BenchmarkRun::* member,
                              const std::vector<T>& values) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    only(runs[i]).*member = values[std::min(i, values.size() - 1)];
  }
  return runs;
}

std::vector<MeasuredRun> with_state(std::vector<MeasuredRun> runs,
                                    const std::vector<std::int64_t>& bytes) {
  return with(std::move(runs), &BenchmarkRun::state_bytes,
              std::vector<std::optional<std::int64_t>>(bytes.begin(), bytes.end()));
}

ComparedBenchmark row_of(std::vector<MeasuredRun> base, std::vector<MeasuredRun> fresh,
                         const CompareOptions& options = {},
                         const std::vector<MeasuredRun>& history = {}) {
  const Comparison comparison = compare(std::move(base), std::move(fresh), options, history);
  EXPECT_EQ(comparison.benchmarks.size(), 1U);
  return comparison.benchmarks.front();
}

TEST(ComparisonMarkdown, SaysWhereNoNumberOfRunsWouldSettleAVerdict) {
  const Comparison comparison =
      compare(around(1000, 0.05, 1000, false), around(1029.9, 0.05, 1000, true), {});
  ASSERT_EQ(comparison.benchmarks.front().time_verdict, Verdict::uncertain);
  EXPECT_EQ(comparison.benchmarks.front().runs_more, std::nullopt);
  EXPECT_THAT(comparison_markdown(comparison),
              HasSubstr("| uncertain, not even 10,000 more runs a side would tell |"));
}

TEST(ComparisonMarkdown, SaysWhetherPairsOrRunsWouldTell) {
  CompareOptions paired;
  paired.paired = true;
  const auto [base, fresh] = std::pair(around(100, 0.05, 4, false), around(101, 0.04, 4, true));
  const Comparison runs = compare(base, fresh, {});
  EXPECT_THAT(comparison_markdown(runs),
              HasSubstr("uncertain, " + std::to_string(*runs.benchmarks[0].runs_more) +
                        " more runs a side would tell"));
  const Comparison pairs = compare(base, fresh, paired);
  EXPECT_THAT(comparison_markdown(pairs),
              HasSubstr("uncertain, " + std::to_string(*pairs.benchmarks[0].runs_more) +
                        " more pairs would tell"));
}

TEST(ComparisonMarkdown, NamesTheRunsThatTheBenchmarkWithMostNeeds) {
  std::vector<MeasuredRun> base = around(1000, 0.1, 4, false);
  std::vector<MeasuredRun> fresh = around(1000, 0.1, 4, true);
  for (auto* side : {&base, &fresh}) {
    for (MeasuredRun& run : *side) find_or_add_benchmark(run, "steady").p50_ns = 7;
  }
  const Comparison comparison = compare(base, fresh, {});
  const auto most = comparison.benchmarks.front().runs_for_10_percent;
  ASSERT_GT(most, comparison.benchmarks.back().runs_for_10_percent);
  EXPECT_THAT(comparison_markdown(comparison),
              HasSubstr("A change of 10 % needs about " + std::to_string(*most) +
                        " runs a side, launched in turn."));
  CompareOptions paired;
  paired.paired = true;
  EXPECT_THAT(comparison_markdown(compare(base, fresh, paired)), HasSubstr(" pairs."));
}

TEST(ComparisonMarkdown, ShowsBothTimesInTheUnitOfTheSmaller) {
  for (const auto& [was, is] : {std::pair(1.5e9, 0.5e9), std::pair(0.5e9, 1.5e9)}) {
    const std::string text = comparison_markdown(compare({run_of(was)}, {run_of(is)}, {}));
    EXPECT_THAT(text, HasSubstr("1500 ms"));
    EXPECT_THAT(text, HasSubstr("500.0 ms"));
  }
}

TEST(ComparisonMarkdown, ShowsAnEnormousRatioInFewDigits) {
  EXPECT_THAT(comparison_markdown(compare({run_of(1)}, {run_of(2e12)}, {})),
              HasSubstr("| 2e+12 |"));
}

// A side's figures.

TEST(ASide, IsTheGeometricMeanOfItsRuns) {
  const auto row = row_of({run_of(10, 0), run_of(1000, 2)}, {run_of(100, 1), run_of(400, 3)});
  EXPECT_NEAR(*row.base.p50_ns, 100, 1e-9);
  EXPECT_NEAR(*row.fresh.p50_ns, 200, 1e-9);
  EXPECT_NEAR(row.time->ratio, 2, 1e-12);
  // The figure of one run is what it measured, to the last digit.
  EXPECT_EQ(row_of({run_of(0.1)}, {run_of(3e9 + 0.1)}).fresh.p50_ns, 3e9 + 0.1);
}

TEST(ASide, HasTheLargestBytesOfItsRunsAndTheWorstContract) {
  const auto base = with(with_state(base_of(100), {5, 9, 7}), &BenchmarkRun::contract,
                         {std::string("ok"), std::string("unverified"), std::string("ok")});
  EXPECT_EQ(row_of(base, new_of(100)).base.state_bytes, 9);
  EXPECT_EQ(row_of(base, new_of(100)).base.contract, "unverified");
  const auto fresh = with(new_of(100), &BenchmarkRun::contract,
                          {std::string("unverified"), std::string("broken"), std::string("ok")});
  const auto row = row_of(base, fresh);
  EXPECT_EQ(row.fresh.contract, "broken");
  EXPECT_EQ(row.verdict, Verdict::broken);
}

TEST(ASide, CountsNoTimeOfARunThatFailed) {
  auto fresh = new_of(100);
  only(fresh[1]).status = "failed";
  only(fresh[1]).p50_ns = 1e6;
  only(fresh[1]).state_bytes = 77;
  only(fresh[1]).contract = "broken";
  const auto row = row_of(with_state(base_of(100), {7}), with_state(fresh, {7, 77, 7}));
  EXPECT_EQ(row.fresh.runs, 3);
  EXPECT_LT(*row.fresh.p50_ns, 101);
  EXPECT_EQ(row.fresh.state_bytes, 7);
  // What it broke counts all the same.
  EXPECT_EQ(row.fresh.contract, "broken");
  EXPECT_EQ(row.verdict, Verdict::broken);
}

// Conditions.

TEST(Conditions, ThatOnlyOneSideNamesAreNotHeldAgainstIt) {
  auto said = new_of(100);
  for (MeasuredRun& run : said) only(run).conditions = {{"device", "cpu"}};
  EXPECT_EQ(row_of(base_of(100), said).verdict, Verdict::same);
  EXPECT_EQ(row_of(said, base_of(100)).verdict, Verdict::same);
  EXPECT_THAT(row_of(base_of(100), said).reasons, IsEmpty());
}

TEST(Conditions, ThatVaryWithinASideAreNotCompared) {
  const auto mixed = [](std::vector<MeasuredRun> runs) {
    for (MeasuredRun& run : runs) only(run).conditions = {{"threads", "1"}};
    only(runs.back()).conditions = {{"threads", "2"}};
    return runs;
  };
  auto plain = base_of(100);
  for (MeasuredRun& run : plain) only(run).conditions = {{"threads", "1"}};
  for (const auto& [base, fresh] :
       {std::pair(mixed(base_of(100)), mixed(new_of(100))), std::pair(plain, mixed(new_of(100))),
        std::pair(mixed(base_of(100)), plain)}) {
    const auto row = row_of(base, fresh);
    EXPECT_EQ(row.verdict, Verdict::not_compared);
    EXPECT_FALSE(row.time);
  }
  const auto row = row_of(mixed(base_of(100)), mixed(new_of(100)));
  EXPECT_THAT(row.reasons, ElementsAre("threads: 1 and 2, now 1 and 2"));
  CompareOptions anyway;
  anyway.differing = true;
  EXPECT_EQ(row_of(mixed(base_of(100)), mixed(new_of(100)), anyway).verdict, Verdict::same);
}

// Bytes.

TEST(Bytes, ThatVaryFromRunToRunChangedOnlyWhereTheSidesDoNotOverlap) {
  const auto of = [](const std::vector<std::int64_t>& base,
                     const std::vector<std::int64_t>& fresh) {
    return row_of(with_state(base_of(100), base), with_state(new_of(100), fresh));
  };
  EXPECT_EQ(of({5, 7}, {5, 7}).verdict, Verdict::uncertain);
  EXPECT_EQ(of({5, 5}, {5, 7}).verdict, Verdict::uncertain);
  EXPECT_EQ(of({5, 7}, {7, 7}).verdict, Verdict::uncertain);
  EXPECT_EQ(of({5, 7}, {6, 9}).verdict, Verdict::uncertain);
  EXPECT_EQ(of({6, 9}, {5, 7}).verdict, Verdict::uncertain);
  EXPECT_EQ(of({5, 7}, {8, 9}).verdict, Verdict::larger);
  EXPECT_EQ(of({8, 9}, {5, 7}).verdict, Verdict::smaller);
  EXPECT_EQ(of({8, 8}, {7, 7}).verdict, Verdict::smaller);
  EXPECT_THAT(of({5, 7}, {6, 9}).reasons,
              ElementsAre("state: 7 bytes, now 9; varies from run to run"));
  EXPECT_THAT(of({8, 8}, {7, 7}).reasons, ElementsAre("state: 8 bytes, now 7"));
}

TEST(Bytes, ThatOneSideDoesNotSayAreNotCompared) {
  const auto row = row_of(base_of(100), with_state(new_of(100), {7}));
  EXPECT_EQ(row.verdict, Verdict::same);
  EXPECT_THAT(row.reasons, IsEmpty());
}

// The verdict of everything.

TEST(TheVerdict, IsTheWorstOfTimeBytesAndContract) {
  const auto contract = [](std::vector<MeasuredRun> runs, const std::string& word) {
    return with(std::move(runs), &BenchmarkRun::contract, {word});
  };
  const auto large = with_state(contract(new_of(200), "ok"), {8});
  EXPECT_EQ(row_of(with_state(contract(base_of(100), "ok"), {7}), large).verdict, Verdict::slower);
  EXPECT_EQ(row_of(with_state(contract(base_of(400), "ok"), {7}), large).verdict, Verdict::larger);
  EXPECT_EQ(row_of(with_state(contract(base_of(100), "broken"), {9}), large).verdict,
            Verdict::slower);
  const auto row = row_of(with_state(contract(base_of(200), "broken"), {9}), large);
  EXPECT_EQ(row.verdict, Verdict::smaller);
  EXPECT_EQ(row.time_verdict, Verdict::same);
  EXPECT_THAT(row.reasons, ElementsAre("contract: broken, now ok", "state: 9 bytes, now 8"));
}

TEST(TheVerdict, NamesAContractThatIsBrokenOnBothSides) {
  const auto broken = [](std::vector<MeasuredRun> runs) {
    return with(std::move(runs), &BenchmarkRun::contract, {std::string("broken")});
  };
  const auto row = row_of(broken(base_of(100)), broken(new_of(100)));
  EXPECT_EQ(row.verdict, Verdict::same);
  EXPECT_THAT(row.reasons, ElementsAre("contract: broken on both sides"));
}

TEST(TheVerdict, TakesAContractThatIsNotSaidForNoneThatHolds) {
  const auto contract = [](std::vector<MeasuredRun> runs, const std::string& word) {
    return with(std::move(runs), &BenchmarkRun::contract, {word});
  };
  EXPECT_EQ(row_of(contract(base_of(100), "ok"), new_of(100)).verdict, Verdict::uncertain);
  EXPECT_EQ(row_of(contract(base_of(100), "broken"), new_of(100)).verdict, Verdict::uncertain);
  EXPECT_EQ(row_of(base_of(100), contract(new_of(100), "broken")).verdict, Verdict::broken);
  EXPECT_EQ(row_of(base_of(100), contract(new_of(100), "ok")).verdict, Verdict::same);
  EXPECT_EQ(row_of(contract(base_of(100), "unverified"), contract(new_of(100), "ok")).verdict,
            Verdict::same);
}

TEST(TheVerdict, OfABenchmarkThatFailsOnASide) {
  const auto status = [](std::vector<MeasuredRun> runs, const std::string& word) {
    for (MeasuredRun& run : runs) {
      only(run).status = word;
      only(run).status_reason = "why";
    }
    return runs;
  };
  EXPECT_EQ(row_of(base_of(100), status(new_of(100), "failed")).verdict, Verdict::regression);
  EXPECT_EQ(row_of(status(base_of(100), "failed"), new_of(100)).verdict, Verdict::fixed);
  const auto both = row_of(status(base_of(100), "failed"), status(new_of(100), "failed"));
  EXPECT_EQ(both.verdict, Verdict::not_compared);
  EXPECT_THAT(both.reasons, ElementsAre("base failed: why", "new failed: why"));
  // Of its own will is no failure.
  const auto skipped = row_of(base_of(100), status(new_of(100), "skipped"));
  EXPECT_EQ(skipped.verdict, Verdict::not_compared);
  EXPECT_THAT(skipped.reasons, ElementsAre("new was not measured"));
  EXPECT_THAT(row_of(status(base_of(100), "skipped"), new_of(100)).reasons,
              ElementsAre("base was not measured"));
  // One run that failed is a benchmark that fails.
  auto some = new_of(100);
  only(some[2]).status = "failed";
  EXPECT_EQ(row_of(base_of(100), some).verdict, Verdict::regression);
  EXPECT_THAT(row_of(base_of(100), some).reasons, ElementsAre("new failed"));
}

TEST(TheVerdict, NamesTheSideThatAloneHasTheBenchmark) {
  EXPECT_EQ(row_of(base_of(100), {}).verdict, Verdict::only_in_base);
  EXPECT_EQ(row_of({}, new_of(100)).verdict, Verdict::only_in_new);
}

TEST(TheVerdict, DecidesTheExitCodeAndWhetherAnythingWasCompared) {
  EXPECT_EQ(compare(base_of(100), new_of(200), {}).regressions(), 1);
  EXPECT_EQ(compare(base_of(200), new_of(100), {}).regressions(), 0);
  EXPECT_EQ(compare(with_state(base_of(100), {7}), with_state(new_of(100), {8}), {}).regressions(),
            1);
  // Uncertain is none, and is compared.
  const Comparison lone = compare({run_of(10)}, {run_of(90)}, {});
  EXPECT_EQ(lone.regressions(), 0);
  EXPECT_EQ(lone.compared(), 1);
  EXPECT_EQ(compare({run_of(0)}, {run_of(10)}, {}).compared(), 0);
  EXPECT_EQ(compare({}, {run_of(10)}, {}).compared(), 0);
  EXPECT_EQ(compare({run_of(10)}, {}, {}).compared(), 0);
}

// Times.

TEST(Times, OfZeroOnEitherSideHaveNoRatio) {
  for (const auto& [was, is] : {std::pair(0.0, 5.0), std::pair(5.0, 0.0), std::pair(0.0, 0.0)}) {
    const auto row = row_of({run_of(was)}, {run_of(is)});
    EXPECT_FALSE(row.time);
    EXPECT_EQ(row.verdict, Verdict::not_compared);
    EXPECT_THAT(row.reasons, ElementsAre("a step time of 0 has no ratio"));
  }
  EXPECT_NEAR(row_of({run_of(0.25)}, {run_of(0.5)}).time->ratio, 2, 1e-12);
}

TEST(Times, AreSlowerOrFasterOnlyBeyondTheThresholdAndWithCertainty) {
  // 2.9 % and 3.1 %, with hardly any spread: the threshold decides, on both sides alike.
  const auto exact = [](double ns, bool fresh) { return around(ns, 1e-6, 4, fresh); };
  EXPECT_EQ(row_of(exact(1000, false), exact(1029, true)).time_verdict, Verdict::same);
  EXPECT_EQ(row_of(exact(1000, false), exact(1031, true)).time_verdict, Verdict::slower);
  EXPECT_EQ(row_of(exact(1029, false), exact(1000, true)).time_verdict, Verdict::same);
  EXPECT_EQ(row_of(exact(1031, false), exact(1000, true)).time_verdict, Verdict::faster);
  CompareOptions half;
  half.threshold = 0.5;
  EXPECT_EQ(row_of(exact(1000, false), exact(1490, true), half).time_verdict, Verdict::same);
  EXPECT_EQ(row_of(exact(1000, false), exact(1510, true), half).time_verdict, Verdict::slower);
  // Beyond it, and by luck: uncertain, whatever the direction.
  const auto shaky = [](double ns, bool fresh) { return around(ns, 0.2, 4, fresh); };
  EXPECT_EQ(row_of(shaky(1000, false), shaky(1100, true)).time_verdict, Verdict::uncertain);
  EXPECT_EQ(row_of(shaky(1100, false), shaky(1000, true)).time_verdict, Verdict::uncertain);
}

/// Benchmarks that are all slower by e^0.2 with this p-value each, of two runs a side at e^-luck
/// and e^luck: Student's t has two degrees of freedom and an error of sqrt(2) luck, so that p = 1 -
/// t / sqrt(2 + t^2).
std::vector<ComparedBenchmark> of_p_value(double p, std::size_t benchmarks) {
  constexpr double kChange = 0.2;
  const double t = std::sqrt(2.0) * (1 - p) / std::sqrt(1 - (1 - p) * (1 - p));
  const double luck = kChange / (std::sqrt(2.0) * t);
  const auto side = [&](double change, std::size_t minute) {
    std::vector<MeasuredRun> runs;
    for (const double one : {luck, -luck}) {
      MeasuredRun& run = runs.emplace_back();
      run.started = std::to_string(1000 + minute + 2 * runs.size());
      for (std::size_t k = 0; k < benchmarks; ++k) {
        find_or_add_benchmark(run, "BM" + std::to_string(k)).p50_ns = 1e6 * std::exp(change + one);
      }
    }
    return runs;
  };
  return compare(side(0, 0), side(kChange, 1), {}).benchmarks;
}

TEST(Times, AreCertainFromAPValueOfOnePercentOverAllBenchmarks) {
  for (const auto& [p, benchmarks, verdict] : {std::tuple(0.0095, 1, Verdict::slower),
                                               {0.0105, 1, Verdict::uncertain},
                                               {0.0045, 2, Verdict::slower},
                                               {0.0055, 2, Verdict::uncertain},
                                               {0.00095, 10, Verdict::slower},
                                               {0.00105, 10, Verdict::uncertain}}) {
    for (const ComparedBenchmark& row : of_p_value(p, static_cast<std::size_t>(benchmarks))) {
      EXPECT_NEAR(*row.time->p_value, p * benchmarks, 1e-9);
      EXPECT_EQ(row.time_verdict, verdict) << p << " over " << benchmarks;
    }
  }
}

TEST(Times, AreTheSameWhereTheWholeIntervalLiesWithinTheThreshold) {
  // Symmetric by the logarithm: both limits count.
  for (const double change : {0.02, -0.02}) {
    const auto row =
        row_of(around(1000, 0.02, 6, false), around(1000 * std::exp(change), 0.02, 6, true));
    ASSERT_TRUE(row.time->low);
    EXPECT_EQ(std::log(*row.time->high) > std::log1p(0.03), change > 0);
    EXPECT_EQ(std::log(*row.time->low) < -std::log1p(0.03), change < 0);
    EXPECT_EQ(row.time_verdict, Verdict::uncertain) << change;
  }
  EXPECT_EQ(row_of(around(1000, 0.002, 6, false), around(1010, 0.002, 6, true)).time_verdict,
            Verdict::same);
}

TEST(Times, SayHowManyRunsWouldTell) {
  // Those of the side that has fewer, over all benchmarks, and of pairs where they are.
  const auto few = row_of(around(1000, 0.05, 4, false), around(1000, 0.05, 8, true));
  const auto expected = runs_to_settle(
      {.change = std::log(few.time->ratio), .spread = *few.time->spread, .have = 4, .freedom = 10});
  ASSERT_EQ(few.time_verdict, Verdict::uncertain);
  EXPECT_EQ(few.runs_more, expected);
  CompareOptions paired;
  paired.paired = true;
  auto base = around(1000, 0.05, 6, false);
  auto fresh = base;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    *only(fresh[i]).p50_ns *= i % 2 == 0 ? 1.05 : 1 / 1.06;
  }
  const auto pairs = row_of(base, fresh, paired);
  ASSERT_EQ(pairs.time_verdict, Verdict::uncertain);
  EXPECT_EQ(pairs.runs_more, runs_to_settle({.change = std::log(pairs.time->ratio),
                                             .spread = *pairs.time->spread,
                                             .have = 6,
                                             .freedom = 5,
                                             .paired = true}));
  EXPECT_EQ(pairs.runs_for_10_percent,
            runs_needed(cautious_spread(*pairs.time->spread, 5), std::log(1.1), 1, true));
  EXPECT_EQ(few.runs_for_10_percent,
            runs_needed(cautious_spread(*few.time->spread, 10), std::log(1.1), 1, false));
  for (auto* side : {&base, &fresh}) {
    for (MeasuredRun& run : *side) {
      const double ns = *only(run).p50_ns;
      find_or_add_benchmark(run, "another").p50_ns = ns;
      find_or_add_benchmark(run, "a third").p50_ns = ns;
    }
  }
  const auto three = compare(base, fresh, paired).benchmarks.front();
  EXPECT_EQ(three.runs_for_10_percent,
            runs_needed(cautious_spread(*pairs.time->spread, 5), std::log(1.1), 3, true));
  EXPECT_EQ(three.runs_more, runs_to_settle({.change = std::log(pairs.time->ratio),
                                             .spread = *pairs.time->spread,
                                             .have = 6,
                                             .freedom = 5,
                                             .paired = true,
                                             .benchmarks = 3}));
}

TEST(Times, NeedMoreRunsWhereMoreBenchmarksAreTestedTogether) {
  auto base = around(1000, 0.1, 6, false);
  auto fresh = around(1150, 0.1, 6, true);
  for (auto* side : {&base, &fresh}) {
    for (MeasuredRun& run : *side) {
      const double ns = *only(run).p50_ns;
      for (const char* name : {"b", "c", "d", "e"}) find_or_add_benchmark(run, name).p50_ns = ns;
    }
  }
  const ComparedBenchmark row = compare(base, fresh, {}).benchmarks.front();
  UncertainTime time = {
      .change = std::log(row.time->ratio), .spread = *row.time->spread, .have = 6, .freedom = 10};
  const auto alone = runs_to_settle(time);
  time.benchmarks = 5;
  EXPECT_EQ(row.runs_more, runs_to_settle(time));
  EXPECT_GT(row.runs_more, alone);
}

TEST(Times, OfSidesThatWereNotLaunchedInTurnAreToBeMeasuredAnew) {
  auto fresh = around(1050, 0.05, 4, true);
  for (MeasuredRun& run : fresh) run.started = "9" + run.started;
  const Comparison apart = compare(around(1000, 0.05, 4, false), fresh, {});
  const ComparedBenchmark& row = apart.benchmarks.front();
  EXPECT_FALSE(apart.runs_count_on());
  EXPECT_THAT(apart.notes, ElementsAre(HasSubstr("launched one after the other")));
  EXPECT_EQ(row.runs_more, runs_to_settle({.change = std::log(row.time->ratio),
                                           .spread = *row.time->spread,
                                           .have = 4,
                                           .freedom = 6,
                                           .kept = false}));
  // Three runs a side are what they are.
  fresh.resize(3);
  EXPECT_THAT(compare(around(1000, 0.05, 3, false), fresh, {}).notes, IsEmpty());
}

TEST(Times, DoNotDependOnTheOrderInWhichRunsAreNamed) {
  auto base = around(1000, 0.05, 9, false);
  auto fresh = around(1100, 0.05, 9, true);
  // A machine that becomes slower; one side after the other, so that neighbours count.
  for (std::size_t i = 0; i < base.size(); ++i) {
    *only(base[i]).p50_ns *= 1 + 0.03 * static_cast<double>(i);
    *only(fresh[i]).p50_ns *= 1 + 0.03 * static_cast<double>(i);
    fresh[i].started = "9" + fresh[i].started;
  }
  const auto p = [](const std::vector<MeasuredRun>& a, const std::vector<MeasuredRun>& b) {
    return *row_of(a, b).time->p_value;
  };
  const double expected = p(base, fresh);
  auto shuffled_base = base;
  auto shuffled_new = fresh;
  std::swap(shuffled_base[0], shuffled_base[7]);
  std::swap(shuffled_new[1], shuffled_new[8]);
  EXPECT_EQ(p(shuffled_base, fresh), expected);
  // Launched in turn, the same times would be independent.
  for (MeasuredRun& run : fresh) run.started.erase(0, 1);
  EXPECT_LT(p(base, fresh), expected / 2);
  for (MeasuredRun& run : fresh) run.started.insert(0, "9");
  EXPECT_EQ(p(base, shuffled_new), expected);
}

// Pairs.

CompareOptions in_pairs() {
  CompareOptions options;
  options.paired = true;
  return options;
}

TEST(Pairs, CountOnlyWhereBothRunsMeasuredTheBenchmark) {
  auto base = base_of(100, 6);
  auto fresh = new_of(100, 6);
  only(base[1]).status = "failed";
  only(fresh[2]).p50_ns.reset();
  base[3].benchmarks.clear();
  *only(fresh[1]).p50_ns *= 50;
  *only(base[2]).p50_ns *= 50;
  *only(fresh[3]).p50_ns *= 50;
  const auto row = row_of(base, fresh, in_pairs());
  EXPECT_EQ(row.base.runs, 3);
  EXPECT_EQ(row.fresh.runs, 3);
  EXPECT_NEAR(row.time->ratio, 1, 1e-9);
  EXPECT_NEAR(*row.fresh.p50_ns / *row.base.p50_ns, row.time->ratio, 1e-9);
}

TEST(Pairs, KeepTheContractOfARunWhosePartnerFailed) {
  auto base = with(base_of(100), &BenchmarkRun::contract, {std::string("ok")});
  auto fresh = with(new_of(100), &BenchmarkRun::contract, {std::string("ok")});
  only(base[1]).status = "failed";
  only(fresh[1]).contract = "broken";
  const auto row = row_of(base, fresh, in_pairs());
  EXPECT_EQ(row.fresh.contract, "broken");
  EXPECT_EQ(row.verdict, Verdict::broken);
  EXPECT_EQ(row.fresh.runs, 3);
}

TEST(Pairs, LoseBothRunsWhereOneIsNotWhole) {
  for (const std::size_t which : {0U, 1U}) {
    auto base = base_of(100);
    auto fresh = new_of(100);
    (which == 0 ? base : fresh)[2].unusable = "is not complete";
    *only((which == 0 ? fresh : base)[2]).p50_ns *= 50;
    const Comparison comparison = compare(base, fresh, in_pairs());
    EXPECT_EQ(comparison.base.size(), 3U);
    EXPECT_EQ(comparison.fresh.size(), 3U);
    EXPECT_NEAR(comparison.benchmarks.front().time->ratio, 1, 1e-9);
    EXPECT_THAT(comparison.notes, Contains(HasSubstr("is not complete")));
  }
}

TEST(Pairs, NeedAsManyRunsOnBothSides) {
  EXPECT_THROW(compare(base_of(100, 3), new_of(100, 4), in_pairs()), Error);
  EXPECT_THROW(compare(base_of(100, 4), new_of(100, 3), in_pairs()), Error);
}

TEST(Pairs, SayWhereAnyOfThemIsTakenOnTrust) {
  auto base = base_of(100);
  auto fresh = new_of(100);
  for (std::size_t i = 0; i < base.size(); ++i) base[i].pair = fresh[i].pair = std::to_string(i);
  EXPECT_THAT(compare(base, fresh, in_pairs()).notes, IsEmpty());
  base[2].pair = fresh[2].pair = "";
  EXPECT_THAT(compare(base, fresh, in_pairs()).notes, ElementsAre(HasSubstr("on trust")));
}

TEST(Pairs, StayPairsWhateverTheirTimes) {
  // Out of order, as they may be given: the sides must not be sorted apart.
  auto base = base_of(100);
  auto fresh = new_of(100);
  for (std::size_t i = 0; i < base.size(); ++i) {
    const double phase = 1 + static_cast<double>(i);
    *only(base[i]).p50_ns *= phase;
    *only(fresh[i]).p50_ns *= phase;
    fresh[i].started = std::to_string(2000 - i);
  }
  const Comparison comparison = compare(base, fresh, in_pairs());
  EXPECT_LT(*comparison.benchmarks.front().time->spread, 0.01);
  EXPECT_TRUE(comparison.runs_count_on());
}

// History.

/// Equal builds from `ns` to `ns` * (1 + `percent` / 100).
std::vector<MeasuredRun> history_of(double ns, double percent, std::size_t count = 40,
                                    const std::string& commit = "one") {
  std::vector<MeasuredRun> runs;
  for (std::size_t i = 0; i < count; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(count - 1);
    runs.push_back(run_of(ns * (1 + percent / 100 * part), i));
    runs.back().commit = commit;
  }
  return runs;
}

TEST(ComparisonMarkdown, SaysHowManyRunsAreNeededWhereOneOfASideShowsNoSpread) {
  const auto one_note = [](const Comparison& comparison) {
    return comparison.notes.size() == 1 ? comparison.notes.front() : "";
  };
  for (const auto& base : {std::vector{run_of(10)}, std::vector{run_of(10), run_of(11)}}) {
    const Comparison lone = compare(base, {run_of(11)}, {});
    EXPECT_THAT(comparison_markdown(lone), HasSubstr("| uncertain, needs 3 runs a side |"));
    EXPECT_THAT(one_note(lone), HasSubstr("give at least 3 runs a side, launched in turn"));
    EXPECT_THAT(one_note(lone), HasSubstr("bench/compare_commits"));
    EXPECT_THAT(comparison_json(lone), HasSubstr("give at least 3 runs a side"));
  }
  CompareOptions paired;
  paired.paired = true;
  const auto [base, fresh] = std::pair(around(100, 0.2, 1, false), around(100, 0.2, 1, true));
  const Comparison pair = compare(base, fresh, paired);
  EXPECT_THAT(comparison_markdown(pair), HasSubstr("| uncertain, needs 3 pairs |"));
  EXPECT_THAT(comparison_json(pair), HasSubstr("measure at least 3 (bench/compare_commits"));
  // Two a side are few, and what is said of them is in their rows.
  const Comparison two = compare(around(100, 0.2, 2, false), around(100, 0.2, 2, true), {});
  EXPECT_THAT(two.notes, IsEmpty());
  // Where nothing about the time is uncertain, nothing is asked for.
  EXPECT_THAT(compare({run_of(100)}, {run_of(200)}, {}, history_of(100, 20)).notes, SizeIs(1));
}

Verdict by_history(double was, double is, const std::vector<MeasuredRun>& history) {
  return row_of({run_of(was)}, {run_of(is)}, {}, history).verdict;
}

TEST(AHistory, DecidesBeyondWhatEqualBuildsDifferedBy) {
  const auto history = history_of(100, 20);
  EXPECT_EQ(by_history(100, 119, history), Verdict::uncertain);
  EXPECT_EQ(by_history(100, 121, history), Verdict::slower);
  EXPECT_EQ(by_history(119, 100, history), Verdict::uncertain);
  EXPECT_EQ(by_history(121, 100, history), Verdict::faster);
  // A steady one does not make a change matter that is within the threshold.
  EXPECT_EQ(by_history(100, 102, history_of(100, 0)), Verdict::uncertain);
  EXPECT_EQ(by_history(100, 104, history_of(100, 0)), Verdict::slower);
}

TEST(AHistory, NeedsFortyRunsOfOneBuildThatMeasuredTheSame) {
  EXPECT_EQ(by_history(100, 200, history_of(100, 20, 39)), Verdict::uncertain);
  EXPECT_EQ(by_history(100, 200, history_of(100, 20, 40)), Verdict::slower);
  // Of two builds none has forty.
  auto two = history_of(100, 20, 39);
  two.push_back(history_of(100, 20, 2, "two").front());
  EXPECT_EQ(by_history(100, 200, two), Verdict::uncertain);
  auto libraries = history_of(100, 20);
  libraries.back().library = "bitsandbytes 0.51";
  EXPECT_EQ(by_history(100, 200, libraries), Verdict::uncertain);
  // What names no commit may be of any.
  EXPECT_EQ(by_history(100, 200, history_of(100, 20, 40, "")), Verdict::uncertain);
  const auto lost = [](auto change) {
    auto history = history_of(100, 20);
    change(history.back());
    return by_history(100, 200, history);
  };
  EXPECT_EQ(lost([](MeasuredRun& run) { run.unusable = "is not complete"; }), Verdict::uncertain);
  EXPECT_EQ(lost([](MeasuredRun& run) { only(run).status = "failed"; }), Verdict::uncertain);
  EXPECT_EQ(lost([](MeasuredRun& run) { only(run).p50_ns = 0; }), Verdict::uncertain);
  EXPECT_EQ(lost([](MeasuredRun& run) { only(run).benchmark = "other"; }), Verdict::uncertain);
}

TEST(AHistory, OfManyBuildsAndBenchmarksShowsTheMostThatAnyDifferedBy) {
  auto history = history_of(100, 50);
  for (const MeasuredRun& run : history_of(100, 10, 40, "two")) history.push_back(run);
  EXPECT_EQ(by_history(100, 140, history), Verdict::uncertain);
  // A benchmark that is not compared here has no say.
  for (MeasuredRun& run : history) find_or_add_benchmark(run, "wild").p50_ns = 1;
  *find_or_add_benchmark(history.front(), "wild").p50_ns = 1000;
  EXPECT_EQ(by_history(100, 160, history), Verdict::slower);
  // Nor has one that is named here and has no ratio.
  MeasuredRun base = run_of(100);
  find_or_add_benchmark(base, "wild").p50_ns = 0;
  const Comparison comparison = compare({base}, {run_of(160)}, {}, history);
  EXPECT_EQ(comparison.benchmarks.front().verdict, Verdict::slower);
}

TEST(AHistory, IsOfTheSameConditionsAndPossibleTimes) {
  auto history = history_of(100, 20);
  history.push_back(run_of(0));
  history.back().commit = "one";
  EXPECT_EQ(by_history(100, 121, history), Verdict::slower);
  const auto on = [](std::vector<MeasuredRun> runs, const std::string& device) {
    for (MeasuredRun& run : runs) only(run).conditions = {{"device", device}};
    return runs;
  };
  const auto verdict = [&](const std::string& device) {
    return row_of(on({run_of(100)}, device), on({run_of(150)}, device), {}, on(history, "cpu"))
        .verdict;
  };
  EXPECT_EQ(verdict("cpu"), Verdict::slower);
  EXPECT_EQ(verdict("cuda"), Verdict::uncertain);
}

TEST(AHistory, SaysNothingOfSeveralRunsASide) {
  const auto history = history_of(100, 0);
  const auto noisy = row_of(around(100, 0.2, 3, false), around(130, 0.2, 3, true), {}, history);
  EXPECT_EQ(noisy.verdict, Verdict::uncertain);
  EXPECT_THAT(compare(base_of(100), new_of(100), {}, history).notes, IsEmpty());
  EXPECT_THAT(compare({run_of(1)}, {run_of(2)}, {}).notes, Each(Not(HasSubstr("the history"))));
}

// Repetitions of one process.

TEST(Repetitions, AreComparedOnlyBetweenOneRunASide) {
  const auto repeated = [](MeasuredRun run, double real, std::optional<double> cpu) {
    only(run).repetitions = {{.real_ns = real, .cpu_ns = cpu}, {.real_ns = 8, .cpu_ns = 8.0}};
    return run;
  };
  const auto one = repeated(run_of(8), 8, 8.0);
  const auto row = row_of({one}, {repeated(run_of(8), 10, 4.0)});
  ASSERT_EQ(row.repetitions.size(), 2U);
  EXPECT_NEAR(row.repetitions[0].time, 0.25, 1e-12);
  EXPECT_NEAR(*row.repetitions[0].cpu, -0.5, 1e-12);
  EXPECT_THAT(row_of({one, one}, {one, one}).repetitions, IsEmpty());
  // A time of 0 has no ratio.
  EXPECT_EQ(row_of({repeated(run_of(8), 0, 8.0)}, {one}).repetitions.size(), 1U);
  for (const std::optional<double> cpu : {std::optional(0.0), std::optional<double>()}) {
    EXPECT_EQ(row_of({repeated(run_of(8), 8, cpu)}, {one}).repetitions[0].cpu, std::nullopt);
  }
}

TEST(Repetitions, AreCalledUnreliableBelowNine) {
  const auto of = [](std::size_t base, std::size_t fresh) {
    const auto run = [](std::size_t count) {
      MeasuredRun made = run_of(8);
      for (std::size_t i = 0; i < count; ++i) {
        only(made).repetitions.push_back({.real_ns = 1 + static_cast<double>(i), .cpu_ns = {}});
      }
      return made;
    };
    return row_of({run(base)}, {run(fresh)}).reasons;
  };
  EXPECT_THAT(of(9, 9), IsEmpty());
  EXPECT_THAT(of(8, 9), ElementsAre(HasSubstr("8 and 9 repetitions of one process: unreliable")));
  EXPECT_THAT(of(9, 8), ElementsAre(HasSubstr("9 and 8 repetitions")));
}

}  // namespace
}  // namespace stepscope::results
