#include "results/comparison/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "results/comparison/holm.h"
#include "results/comparison/mann_whitney.h"
#include "results/comparison/runs_to_settle.h"

namespace stepscope::results {
namespace {

constexpr double kTenPercent = 0.1;

/// One benchmark in the runs of one side that name it.
using Side = std::vector<const BenchmarkRun*>;

bool measured(const BenchmarkRun* run) { return run->status == "ok" && run->p50_ns.has_value(); }

Side measured_of(const Side& side) {
  Side result;
  std::copy_if(side.begin(), side.end(), std::back_inserter(result), measured);
  return result;
}

std::vector<double> values(const Side& side, std::optional<double> BenchmarkRun::* member) {
  std::vector<double> result;
  for (const BenchmarkRun* run : side) {
    if (run->*member) result.push_back(*(run->*member));
  }
  return result;
}

std::vector<std::int64_t> values(const Side& side,
                                 std::optional<std::int64_t> BenchmarkRun::* member) {
  std::vector<std::int64_t> result;
  for (const BenchmarkRun* run : side) {
    if (run->*member) result.push_back(*(run->*member));
  }
  return result;
}

std::string worst_contract(const Side& side) {
  for (const char* verdict : {"broken", "unverified", "ok"}) {
    for (const BenchmarkRun* run : side) {
      if (run->contract == verdict) return verdict;
    }
  }
  return {};
}

std::optional<std::int64_t> largest(const std::vector<std::int64_t>& all) {
  if (all.empty()) return std::nullopt;
  return *std::max_element(all.begin(), all.end());
}

/// The geometric mean, so that the quotient of two is the ratio that is tested.
std::optional<double> typical(const std::vector<double>& all) {
  if (all.empty()) return std::nullopt;
  if (all.size() == 1) return all.front();
  double sum = 0;
  for (const double value : all) sum += std::log(value);
  return std::exp(sum / static_cast<double>(all.size()));
}

SideFigures figures(const Side& side) {
  const Side ok = measured_of(side);
  SideFigures result;
  result.runs = static_cast<std::int64_t>(ok.size());
  result.p50_ns = typical(values(ok, &BenchmarkRun::p50_ns));
  result.p90_ns = typical(values(ok, &BenchmarkRun::p90_ns));
  result.state_bytes = largest(values(ok, &BenchmarkRun::state_bytes));
  result.peak_allocated_bytes = largest(values(ok, &BenchmarkRun::peak_allocated_bytes));
  result.contract = worst_contract(side);
  return result;
}

/// "device: cpu, now cuda" for every condition that is not one value over all runs.
std::vector<std::string> differing_conditions(const Side& base, const Side& fresh) {
  using Values = std::map<std::string, std::set<std::string>>;
  const auto collect = [](const Side& side) {
    Values result;
    for (const BenchmarkRun* run : side) {
      for (const auto& [name, value] : run->conditions) result[name].insert(value);
    }
    return result;
  };
  const auto list = [](const std::set<std::string>& all) {
    std::string text;
    for (const std::string& value : all) text += (text.empty() ? "" : " and ") + value;
    return text;
  };
  const Values of_base = collect(base);
  std::vector<std::string> result;
  for (const auto& [name, all] : collect(fresh)) {
    const auto found = of_base.find(name);
    // What an older schema does not say cannot be held against it.
    if (found == of_base.end() || (found->second == all && all.size() == 1)) continue;
    result.push_back(name + ": " + list(found->second) + ", now " + list(all));
  }
  return result;
}

/// Of sides that are not empty. Exact: any change counts. Where the runs of a side differ among
/// themselves, only sides that do not overlap do.
Verdict bytes_verdict(const std::vector<std::int64_t>& base,
                      const std::vector<std::int64_t>& fresh) {
  const auto of_base = std::ranges::minmax(base);
  const auto of_new = std::ranges::minmax(fresh);
  if (of_new.min > of_base.max) return Verdict::larger;
  if (of_new.max < of_base.min) return Verdict::smaller;
  const bool steady = of_base.min == of_base.max && of_new.min == of_new.max;
  return steady ? Verdict::same : Verdict::uncertain;
}

/// Takes a verdict about one benchmark into its row: the first in the order of Verdict counts.
void find(ComparedBenchmark& row, Verdict verdict, const std::string& reason = {}) {
  row.verdict = std::min(row.verdict, verdict);
  if (!reason.empty()) row.reasons.push_back(reason);
}

void compare_bytes(const Side& base, const Side& fresh,
                   std::optional<std::int64_t> BenchmarkRun::* member, const std::string& name,
                   ComparedBenchmark& row) {
  const auto of_base = values(base, member);
  const auto of_new = values(fresh, member);
  if (of_base.empty() || of_new.empty()) return;
  const Verdict verdict = bytes_verdict(of_base, of_new);
  if (verdict == Verdict::same) return find(row, verdict);
  find(row, verdict,
       name + ": " + std::to_string(std::ranges::max(of_base)) + " bytes, now " +
           std::to_string(std::ranges::max(of_new)) +
           (verdict == Verdict::uncertain ? "; varies from run to run" : ""));
}

void compare_contracts(ComparedBenchmark& row) {
  const std::string& was = row.base.contract;
  const std::string& is = row.fresh.contract;
  if (was == is) {
    if (is == "broken") find(row, Verdict::same, "contract: broken on both sides");
    return;
  }
  const std::string reason =
      "contract: " + (was.empty() ? "n/a" : was) + ", now " + (is.empty() ? "n/a" : is);
  if (is == "broken") {
    find(row, Verdict::broken, reason);
  } else if (was == "broken" && is == "ok") {
    find(row, Verdict::fixed, reason);
  } else if (was == "ok" || was == "broken") {
    find(row, Verdict::uncertain, reason);  // what is not verified is not ok
  }
}

/// Whether the benchmark failed on a side; says why once.
bool failed(const Side& side, const std::string& name, ComparedBenchmark& row) {
  for (const BenchmarkRun* run : side) {
    if (run->status == "ok" || run->status == "skipped") continue;
    row.reasons.push_back(name + " " + run->status +
                          (run->status_reason.empty() ? "" : ": " + run->status_reason));
    return true;
  }
  return false;
}

/// Keeps of both sides the pairs of which both runs measured the benchmark.
std::pair<Side, Side> measured_pairs(const Side& base, const Side& fresh) {
  std::pair<Side, Side> result;
  for (std::size_t i = 0; i < base.size(); ++i) {
    if (base[i] == nullptr || fresh[i] == nullptr) continue;
    if (!measured(base[i]) || !measured(fresh[i])) continue;
    result.first.push_back(base[i]);
    result.second.push_back(fresh[i]);
  }
  return result;
}

void compare_times(const Side& base, const Side& fresh, const Comparison& comparison,
                   ComparedBenchmark& row) {
  const auto of_base = values(base, &BenchmarkRun::p50_ns);
  const auto of_new = values(fresh, &BenchmarkRun::p50_ns);
  const auto positive = [](double ns) { return ns > 0; };
  if (of_base.empty() || of_new.empty()) return;
  if (!std::all_of(of_base.begin(), of_base.end(), positive) ||
      !std::all_of(of_new.begin(), of_new.end(), positive)) {
    row.reasons.emplace_back("a step time of 0 has no ratio");
    return;
  }
  row.time = comparison.options.paired ? ratio_of_pairs(of_base, of_new)
                                       : ratio_of_runs(of_base, of_new, comparison.order);
}

void compare_repetitions(const Side& base, const Side& fresh, ComparedBenchmark& row) {
  if (base.size() != 1 || fresh.size() != 1) return;
  const auto& before = base.front()->repetitions;
  const auto& after = fresh.front()->repetitions;
  std::array<std::vector<double>, 4> times;  // base and new, real and CPU
  for (const RepetitionTime& repetition : before) {
    times[0].push_back(repetition.real_ns);
    if (repetition.cpu_ns) times[1].push_back(*repetition.cpu_ns);
  }
  for (const RepetitionTime& repetition : after) {
    times[2].push_back(repetition.real_ns);
    if (repetition.cpu_ns) times[3].push_back(*repetition.cpu_ns);
  }
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    if (before[i].real_ns == 0) continue;
    RepetitionChange change{.time = after[i].real_ns / before[i].real_ns - 1, .cpu = {}};
    const auto& cpu = before[i].cpu_ns;
    if (cpu && *cpu != 0 && after[i].cpu_ns) change.cpu = *after[i].cpu_ns / *cpu - 1;
    row.repetitions.push_back(change);
  }
  row.u_test_time = mann_whitney_two_sided(times[0], times[2]);
  row.u_test_cpu = mann_whitney_two_sided(times[1], times[3]);
  if (row.u_test_time && std::min(before.size(), after.size()) < 9) {
    row.reasons.push_back("U test over " + std::to_string(before.size()) + " and " +
                          std::to_string(after.size()) + " repetitions of one process: unreliable");
  }
}

/// The largest |ln(a / b)| between two runs of one commit in `history`, over all benchmarks that
/// were compared here in the same conditions; nothing where no benchmark has enough runs.
std::optional<double> largest_by_luck(const Comparison& comparison,
                                      const std::vector<MeasuredRun>& history) {
  std::optional<double> largest;
  for (const ComparedBenchmark& row : comparison.benchmarks) {
    if (!row.time) continue;
    Side here;
    for (const MeasuredRun& run : comparison.base) {
      if (const BenchmarkRun* one = find_benchmark(run, row.benchmark)) here.push_back(one);
    }
    std::map<std::pair<std::string, std::string>, std::vector<double>> by_build;
    for (const MeasuredRun& run : history) {
      const BenchmarkRun* one = find_benchmark(run, row.benchmark);
      if (one == nullptr || run.commit.empty() || !run.unusable.empty() || !measured(one)) continue;
      if (*one->p50_ns <= 0 || !differing_conditions(here, {one}).empty()) continue;
      by_build[{run.commit, run.library}].push_back(std::log(*one->p50_ns));
    }
    for (const auto& [build, all] : by_build) {
      if (static_cast<std::int64_t>(all.size()) < kLeastHistory) continue;
      const auto ends = std::ranges::minmax(all);
      largest = std::max(largest.value_or(0), ends.max - ends.min);
    }
  }
  return largest;
}

/// Verdicts on changes that have no p-value, because a side has one run.
void judge_by_history(Comparison& comparison, const std::vector<MeasuredRun>& history) {
  const auto by_luck = largest_by_luck(comparison, history);
  const auto lone = [](const ComparedBenchmark& row) { return row.time && !row.time->p_value; };
  if (std::none_of(comparison.benchmarks.begin(), comparison.benchmarks.end(), lone)) return;
  if (!by_luck) {
    if (history.empty()) return;
    comparison.notes.push_back("the history has no " + std::to_string(kLeastHistory) +
                               " runs of one commit in these conditions: it says nothing");
    return;
  }
  const auto percent = static_cast<std::int64_t>(std::lround(std::expm1(*by_luck) * 100));
  comparison.notes.push_back("equal builds in the history differed by up to " +
                             std::to_string(percent) +
                             " %: with one run a side only a larger change counts");
  for (ComparedBenchmark& row : comparison.benchmarks) {
    if (!lone(row)) continue;
    const double change = std::log(row.time->ratio);
    if (std::fabs(change) <= std::max(*by_luck, std::log1p(comparison.options.threshold))) continue;
    row.time_verdict = change > 0 ? Verdict::slower : Verdict::faster;
  }
}

/// Says what to do where runs are too few for any verdict on a time.
void ask_for_runs(Comparison& comparison) {
  const auto lone = [](const ComparedBenchmark& row) {
    return row.time_verdict == Verdict::uncertain && !row.time->spread;
  };
  if (std::none_of(comparison.benchmarks.begin(), comparison.benchmarks.end(), lone)) return;
  const std::string least = std::to_string(kLeastRuns);
  comparison.notes.push_back(
      comparison.options.paired
          ? "one pair does not show how much pairs vary: measure at least " + least +
                " (bench/compare_commits --pairs), after which each row says how many more would "
                "tell"
          : "with one run on a side nobody knows how much runs vary: give at least " + least +
                " runs a side, launched in turn, after which each row says how many more would "
                "tell, or let bench/compare_commits measure pairs");
}

/// Verdicts on the times of all rows, whose p-values are corrected for each other.
void judge_times(Comparison& comparison) {
  std::vector<double> p_values;
  for (const ComparedBenchmark& row : comparison.benchmarks) {
    if (row.time && row.time->p_value) p_values.push_back(*row.time->p_value);
  }
  const std::vector<double> corrected = holm(p_values);
  const auto tested = static_cast<std::int64_t>(std::max<std::size_t>(1, p_values.size()));
  const double threshold = std::log1p(comparison.options.threshold);
  std::size_t next = 0;
  for (ComparedBenchmark& row : comparison.benchmarks) {
    if (!row.time) continue;
    TimeRatio& time = *row.time;
    if (time.p_value) time.p_value = corrected[next++];
    const double change = std::log(time.ratio);
    const bool certain = time.p_value && *time.p_value <= kAlpha;
    if (certain && std::fabs(change) > threshold) {
      row.time_verdict = change > 0 ? Verdict::slower : Verdict::faster;
    } else if (time.low && std::log(*time.low) >= -threshold && std::log(*time.high) <= threshold) {
      row.time_verdict = Verdict::same;
    } else {
      row.time_verdict = Verdict::uncertain;
    }
    if (!time.spread) continue;
    const bool paired = comparison.options.paired;
    const std::int64_t freedom = paired ? row.base.runs - 1 : row.base.runs + row.fresh.runs - 2;
    row.runs_for_10_percent = runs_needed(cautious_spread(*time.spread, freedom),
                                          std::log1p(kTenPercent), tested, paired);
    if (row.time_verdict != Verdict::uncertain) continue;
    row.runs_more = runs_to_settle({.change = change,
                                    .spread = *time.spread,
                                    .have = std::min(row.base.runs, row.fresh.runs),
                                    .freedom = freedom,
                                    .paired = paired,
                                    .kept = comparison.runs_count_on(),
                                    .benchmarks = tested,
                                    .threshold = threshold});
  }
}

/// All but the time, which is judged over all benchmarks together.
void compare_benchmark(const Side& all_base, const Side& all_new, const Comparison& comparison,
                       ComparedBenchmark& row) {
  const CompareOptions& options = comparison.options;
  const auto named = [](const Side& side) {
    Side result;
    std::copy_if(side.begin(), side.end(), std::back_inserter(result),
                 [](const BenchmarkRun* run) { return run != nullptr; });
    return result;
  };
  const Side base = named(all_base);
  const Side fresh = named(all_new);
  row.base = figures(base);
  row.fresh = figures(fresh);
  if (base.empty() || fresh.empty()) {
    return find(row, fresh.empty() ? Verdict::only_in_base : Verdict::only_in_new);
  }
  const std::vector<std::string> different = differing_conditions(base, fresh);
  row.reasons.insert(row.reasons.end(), different.begin(), different.end());
  if (!different.empty() && !options.differing) return find(row, Verdict::not_compared);
  const bool failed_before = failed(base, "base", row);
  const bool failed_now = failed(fresh, "new", row);
  if (failed_now && !failed_before) find(row, Verdict::regression);
  if (failed_now && failed_before) find(row, Verdict::not_compared);
  if (failed_before && !failed_now) find(row, Verdict::fixed);
  compare_contracts(row);
  auto [ok_base, ok_new] = options.paired ? measured_pairs(all_base, all_new)
                                          : std::pair(measured_of(base), measured_of(fresh));
  if (options.paired) {
    row.base = figures(ok_base);
    row.fresh = figures(ok_new);
    row.base.contract = worst_contract(base);
    row.fresh.contract = worst_contract(fresh);
  }
  if (ok_base.empty() || ok_new.empty()) {
    if (!failed_before && !failed_now) {
      find(row, Verdict::not_compared,
           ok_base.empty() ? "base was not measured" : "new was not measured");
    }
    return;
  }
  compare_bytes(ok_base, ok_new, &BenchmarkRun::state_bytes, "state", row);
  compare_bytes(ok_base, ok_new, &BenchmarkRun::peak_allocated_bytes, "peak memory", row);
  compare_times(ok_base, ok_new, comparison, row);
  if (!row.time) find(row, Verdict::not_compared);
  compare_repetitions(ok_base, ok_new, row);
}

void leave_out_unusable(Comparison& comparison) {
  const auto left_out = [&](const MeasuredRun& run) {
    if (run.unusable.empty()) return false;
    comparison.notes.push_back("left out: " + run.path.string() + " " + run.unusable);
    return true;
  };
  std::vector<MeasuredRun> base;
  std::vector<MeasuredRun> fresh;
  if (comparison.options.paired) {
    for (std::size_t i = 0; i < comparison.base.size(); ++i) {
      const bool first = left_out(comparison.base[i]);
      const bool second = left_out(comparison.fresh[i]);
      if (first || second) continue;
      base.push_back(std::move(comparison.base[i]));
      fresh.push_back(std::move(comparison.fresh[i]));
    }
  } else {
    for (auto& run : comparison.base) {
      if (!left_out(run)) base.push_back(std::move(run));
    }
    for (auto& run : comparison.fresh) {
      if (!left_out(run)) fresh.push_back(std::move(run));
    }
  }
  comparison.base = std::move(base);
  comparison.fresh = std::move(fresh);
}

/// Says which runs stand for a larger job that did not run.
void name_substitutes(Comparison& comparison) {
  for (const auto* side : {&comparison.base, &comparison.fresh}) {
    for (const MeasuredRun& run : *side) {
      if (run.substitute.empty()) continue;
      comparison.notes.push_back("substitute: " + run.path.string() + " is " +
                                 printable(run.substitute, 40) +
                                 ", instead of the larger job that was wanted");
    }
  }
}

/// Sorts the runs of each side by time, and finds out whether the sides alternated.
void line_up(Comparison& comparison) {
  const auto earlier = [](const MeasuredRun& a, const MeasuredRun& b) {
    return a.started < b.started;
  };
  const auto starts = [](const std::vector<MeasuredRun>& runs) {
    std::vector<std::string> result;
    for (const MeasuredRun& run : runs) result.push_back(run.started);
    return result;
  };
  std::stable_sort(comparison.base.begin(), comparison.base.end(), earlier);
  std::stable_sort(comparison.fresh.begin(), comparison.fresh.end(), earlier);
  comparison.order = launch_order(starts(comparison.base), starts(comparison.fresh));
  if (comparison.order == LaunchOrder::in_turn) return;
  // Up to three runs a side are tested as they are.
  if (std::max(comparison.base.size(), comparison.fresh.size()) <= 3) return;
  comparison.notes.emplace_back(
      "the sides were launched one after the other, or nobody knows when: neighbours in time are "
      "taken as one, and changes are found later than in runs launched in turn");
}

/// Throws Error where run i of one side took turns with another run than run i of the other.
void require_pairs(Comparison& comparison) {
  const std::vector<MeasuredRun>& base = comparison.base;
  const std::vector<MeasuredRun>& fresh = comparison.fresh;
  if (base.size() != fresh.size()) {
    throw Error("base has " + std::to_string(base.size()) + " runs and new " +
                    std::to_string(fresh.size()) + ", which cannot be pairs",
                "give run i of one side as the partner of run i of the other");
  }
  bool named = true;
  for (std::size_t i = 0; i < base.size(); ++i) {
    if (base[i].pair != fresh[i].pair) {
      const auto name = [](const MeasuredRun& run) {
        return run.pair.empty() ? std::string("no pair") : "pair " + run.pair;
      };
      throw Error("is of " + name(base[i]) + ", and its partner " + fresh[i].path.string() +
                      " is of " + name(fresh[i]),
                  "give the two run folders of a pair at the same place of both sides",
                  {.file = base[i].path.string()});
    }
    named = named && !base[i].pair.empty();
  }
  if (!named) {
    comparison.notes.emplace_back(
        "not every run names the pair it is of: that run i of one side took turns with run i of "
        "the other is taken on trust");
  }
}

}  // namespace

std::string verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::broken:
      return "broken";
    case Verdict::regression:
      return "regression";
    case Verdict::slower:
      return "slower";
    case Verdict::larger:
      return "larger";
    case Verdict::uncertain:
      return "uncertain";
    case Verdict::not_compared:
      return "not compared";
    case Verdict::only_in_base:
      return "only in base";
    case Verdict::only_in_new:
      return "only in new";
    case Verdict::faster:
      return "faster";
    case Verdict::smaller:
      return "smaller";
    case Verdict::fixed:
      return "fixed";
    case Verdict::same:
      return "same";
  }
  throw Error("a verdict without a name");
}

bool is_regression(Verdict verdict) { return verdict < Verdict::uncertain; }

bool Comparison::runs_count_on() const { return options.paired || order == LaunchOrder::in_turn; }

std::int64_t Comparison::regressions() const {
  return std::count_if(benchmarks.begin(), benchmarks.end(),
                       [](const ComparedBenchmark& row) { return is_regression(row.verdict); });
}

std::int64_t Comparison::compared() const {
  return std::count_if(benchmarks.begin(), benchmarks.end(), [](const ComparedBenchmark& row) {
    return row.verdict != Verdict::not_compared && row.verdict != Verdict::only_in_base &&
           row.verdict != Verdict::only_in_new;
  });
}

Comparison compare(std::vector<MeasuredRun> base, std::vector<MeasuredRun> fresh,
                   const CompareOptions& options, const std::vector<MeasuredRun>& history) {
  Comparison comparison;
  comparison.options = options;
  comparison.base = std::move(base);
  comparison.fresh = std::move(fresh);
  if (options.paired) require_pairs(comparison);
  leave_out_unusable(comparison);
  name_substitutes(comparison);
  if (!options.paired) line_up(comparison);
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const auto* side : {&comparison.base, &comparison.fresh}) {
    for (const MeasuredRun& run : *side) {
      for (const BenchmarkRun& benchmark : run.benchmarks) {
        if (seen.insert(benchmark.benchmark).second) names.push_back(benchmark.benchmark);
      }
    }
  }
  for (const std::string& name : names) {
    const auto side_of = [&](const std::vector<MeasuredRun>& runs) {
      Side side;
      for (const MeasuredRun& run : runs) side.push_back(find_benchmark(run, name));
      return side;
    };
    ComparedBenchmark& row = comparison.benchmarks.emplace_back();
    row.benchmark = name;
    compare_benchmark(side_of(comparison.base), side_of(comparison.fresh), comparison, row);
  }
  judge_times(comparison);
  judge_by_history(comparison, history);
  ask_for_runs(comparison);
  for (ComparedBenchmark& row : comparison.benchmarks) {
    if (row.time_verdict && *row.time_verdict < row.verdict) row.verdict = *row.time_verdict;
  }
  return comparison;
}

}  // namespace stepscope::results
