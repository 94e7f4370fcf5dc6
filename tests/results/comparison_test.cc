// compare() on runs in memory: what no file is needed for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "results/comparison/compare.h"
#include "results/comparison/write_comparison.h"

namespace stepscope::results {
namespace {

using ::testing::HasSubstr;

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

TEST(ComparisonMarkdown, SaysWhereNoNumberOfRunsWouldSettleAVerdict) {
  const Comparison comparison =
      compare(around(1000, 0.05, 1000, false), around(1029.9, 0.05, 1000, true), {});
  ASSERT_EQ(comparison.benchmarks.front().time_verdict, Verdict::uncertain);
  EXPECT_EQ(comparison.benchmarks.front().runs_more, std::nullopt);
  EXPECT_THAT(comparison_markdown(comparison),
              HasSubstr("| uncertain, not even 10,000 more would tell |"));
  // Of one run a side nobody knows the spread.
  const Comparison lone = compare({run_of(10)}, {run_of(11)}, {});
  EXPECT_THAT(comparison_markdown(lone), HasSubstr("| uncertain |"));
}

}  // namespace
}  // namespace stepscope::results
