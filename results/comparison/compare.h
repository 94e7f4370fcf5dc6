#pragma once

/// Purpose: compares the runs of two commits, benchmark by benchmark.
///
/// Usage:
///     const Comparison comparison = compare(read_runs(base), read_runs(fresh), {});
///     return comparison.regressions() > 0 ? kCheckFailed : kFine;
///
/// Caveats: one run a side cannot tell a slower commit from an unlucky launch, so its time is
/// "uncertain", unless a history of the machine shows no such difference between equal builds.
/// Bytes and contracts need no statistics.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/comparison/measured_run.h"
#include "results/comparison/time_ratio.h"

namespace stepscope::results {

struct CompareOptions {
  bool paired = false;      ///< run i of one side took turns with run i of the other
  double threshold = 0.03;  ///< changes of the time up to this fraction do not matter
  bool differing = false;   ///< compares benchmarks although their conditions differ
};

/// Runs of one commit below which a history says nothing: with 20, two more equal ones differed by
/// more than any two of them in 3 % of the comparisons of test_comparison_calibration.py.
inline constexpr std::int64_t kLeastHistory = 40;

/// Runs a side, or pairs, below which it is not checked how good the advice on further ones is.
inline constexpr std::int64_t kLeastRuns = 3;

/// The words of a verdict. Those before `uncertain` are regressions.
enum class Verdict : std::uint8_t {
  broken,        ///< a trace contract, and it was not
  regression,    ///< a benchmark failed, and it did not
  slower,        ///< by more than the threshold
  larger,        ///< optimizer state or peak memory
  uncertain,     ///< more runs would tell
  not_compared,  ///< the conditions differ, or a side was not measured
  only_in_base,
  only_in_new,
  faster,
  smaller,
  fixed,  ///< a contract or a benchmark that failed
  same,
};

/// "slower", "only in base" and so on.
std::string verdict_name(Verdict verdict);
bool is_regression(Verdict verdict);

/// One benchmark on one side, over its runs.
struct SideFigures {
  std::int64_t runs = 0;                             ///< in which it was measured
  std::optional<double> p50_ns;                      ///< geometric mean of the runs' medians
  std::optional<double> p90_ns;                      ///< of the runs' 90th percentiles
  std::optional<std::int64_t> state_bytes;           ///< largest of the runs
  std::optional<std::int64_t> peak_allocated_bytes;  ///< likewise
  std::string contract;                              ///< worst of the runs; empty where not said
};

/// A change of the times of one repetition, as Google Benchmark's compare.py prints it.
struct RepetitionChange {
  double time = 0;            ///< new / base - 1
  std::optional<double> cpu;  ///< likewise of the CPU time
};

struct ComparedBenchmark {
  std::string benchmark;
  Verdict verdict = Verdict::same;  ///< of everything: the first in the order of Verdict
  SideFigures base;
  SideFigures fresh;
  std::optional<TimeRatio> time;  ///< its p_value is corrected; nothing: was not compared
  std::optional<Verdict> time_verdict;
  /// Runs a side, or pairs, to add until an uncertain time is settled, with probability kSettles;
  /// where the sides were launched one after the other, to launch anew, in turn. Nothing where that
  /// takes more than 10,000, and where no spread is known.
  std::optional<std::int64_t> runs_more;
  std::optional<std::int64_t> runs_for_10_percent;  ///< a side, or pairs, to find that change
  std::vector<std::string> reasons;                 ///< what the verdict rests on besides the time
  std::vector<RepetitionChange> repetitions;        ///< of Google Benchmark's files, one a side
  std::optional<double> u_test_time;                ///< p-value over those repetitions
  std::optional<double> u_test_cpu;
};

struct Comparison {
  CompareOptions options;
  std::vector<MeasuredRun> base;   ///< in order of time, where not paired
  std::vector<MeasuredRun> fresh;  ///< likewise
  LaunchOrder order = LaunchOrder::in_turn;
  std::vector<std::string> notes;             ///< runs that were left out, and why
  std::vector<ComparedBenchmark> benchmarks;  ///< in the order of base, then those only in new

  /// Whether the runs so far count one by one beside further ones: not where the sides were
  /// launched one after the other.
  bool runs_count_on() const;

  std::int64_t regressions() const;
  /// Benchmarks of which anything was compared.
  std::int64_t compared() const;
};

/// Runs that are unusable are left out, with a note; in pairs with their partner. Throws Error
/// where `paired` and the sides have different numbers of runs, or runs of different pairs face
/// each other.
///
/// `history` holds runs of any commits. Runs of one commit in the conditions of the comparison are
/// equal builds, kLeastHistory of them at least; what differs between any two of them, in any
/// benchmark, is luck, and a change with one run a side counts only where it is larger.
Comparison compare(std::vector<MeasuredRun> base, std::vector<MeasuredRun> fresh,
                   const CompareOptions& options, const std::vector<MeasuredRun>& history = {});

}  // namespace stepscope::results
