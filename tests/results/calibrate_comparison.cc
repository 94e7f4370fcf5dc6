// What the verdicts are worth on real launches, for test_comparison_calibration.py.
// Usage: calibrate_comparison LAUNCHES PAIRS DRAWS; both files are CSV with the columns run, side
// (a or b, of pairs), benchmark and p50_ns, in order of time. Prints JSON: shares of DRAWS draws.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/parse.h"
#include "core/program.h"
#include "results/comparison/compare.h"
#include "results/csv.h"

namespace stepscope::results {
namespace {

using Runs = std::vector<MeasuredRun>;

/// The runs of one side, in order of time.
Runs read_side(const CsvTable& table, const std::string& side) {
  Runs runs;
  std::string last;
  for (const CsvRow& row : table.rows) {
    if (row.fields[table.column("side")] != side) continue;
    const std::string& run = row.fields[table.column("run")];
    if (runs.empty() || run != last) runs.emplace_back();
    last = run;
    BenchmarkRun& benchmark =
        find_or_add_benchmark(runs.back(), row.fields[table.column("benchmark")]);
    benchmark.p50_ns = table.number(row, table.column("p50_ns"));
  }
  return runs;
}

/// `count` different positions below `size`, the same on every machine.
std::vector<std::size_t> draw(std::mt19937_64& random, std::size_t size, std::size_t count) {
  std::vector<std::size_t> all(size);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + random() % (size - i)]);
  all.resize(count);
  return all;
}

Runs pick(const Runs& pool, const std::vector<std::size_t>& positions, double factor = 1) {
  Runs runs;
  for (const std::size_t position : positions) {
    runs.push_back(pool[position]);
    // Zeros in front, so that it sorts as text: the position in the pool is the time of launch.
    const std::string number = std::to_string(position);
    runs.back().started = std::string(6 - number.size(), '0') + number;
    for (BenchmarkRun& benchmark : runs.back().benchmarks) *benchmark.p50_ns *= factor;
  }
  return runs;
}

/// Counts over draws: comparisons with a regression, and benchmarks that were found slower.
struct Tally {
  std::int64_t draws = 0;
  std::int64_t with_regression = 0;
  std::int64_t benchmarks = 0;
  std::int64_t slower = 0;

  void add(const Comparison& comparison) {
    ++draws;
    with_regression += comparison.regressions() > 0 ? 1 : 0;
    for (const ComparedBenchmark& row : comparison.benchmarks) {
      ++benchmarks;
      slower += row.time_verdict == Verdict::slower ? 1 : 0;
    }
  }
  double regressions() const {
    return static_cast<double>(with_regression) / static_cast<double>(draws);
  }
  double found() const { return static_cast<double>(slower) / static_cast<double>(benchmarks); }
};

enum class Order : std::uint8_t { random, alternating, one_after_the_other };

/// `count` launches a side of one pool; `factor` slows the new side down.
Tally of_launches(const Runs& pool, Order order, std::size_t count, std::int64_t draws,
                  double factor) {
  std::mt19937_64 random(count);
  Tally tally;
  for (std::int64_t i = 0; i < draws; ++i) {
    std::vector<std::size_t> all;
    if (order == Order::random) {
      all = draw(random, pool.size(), 2 * count);
    } else {
      all.resize(2 * count);
      std::iota(all.begin(), all.end(), random() % (pool.size() - 2 * count + 1));
    }
    std::vector<std::size_t> base;
    std::vector<std::size_t> fresh;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const bool first = order == Order::alternating ? k % 2 == 0 : k < count;
      (first ? base : fresh).push_back(all[k]);
    }
    tally.add(compare(pick(pool, base), pick(pool, fresh, factor), {}));
  }
  return tally;
}

Tally of_pairs(const Runs& a, const Runs& b, std::size_t count, std::int64_t draws, double factor) {
  std::mt19937_64 random(count);
  CompareOptions options;
  options.paired = true;
  Tally tally;
  for (std::int64_t i = 0; i < draws; ++i) {
    const auto positions = draw(random, a.size(), count);
    // Either side may be the new one.
    const bool swapped = random() % 2 == 0;
    tally.add(compare(pick(swapped ? b : a, positions), pick(swapped ? a : b, positions, factor),
                      options));
  }
  return tally;
}

/// One launch a side, and as many in the history as it needs at least.
Tally of_history(const Runs& pool, std::int64_t draws, double factor) {
  std::mt19937_64 random(2);
  Tally tally;
  for (std::int64_t i = 0; i < draws; ++i) {
    auto positions = draw(random, pool.size(), kLeastHistory + 2);
    const std::size_t base = positions.back();
    positions.pop_back();
    const std::size_t fresh = positions.back();
    positions.pop_back();
    Runs history = pick(pool, positions);
    for (MeasuredRun& run : history) run.commit = "one";
    tally.add(compare(pick(pool, {base}), pick(pool, {fresh}, factor), {}, history));
  }
  return tally;
}

/// How often a benchmark that is slower by 10 % is found with as many runs as ten runs a side said
/// that it takes.
nlohmann::json of_statement(const Runs& pool, std::int64_t draws) {
  constexpr std::size_t kPilot = 10;
  std::mt19937_64 random(1);
  std::int64_t asked = 0;
  std::int64_t found = 0;
  std::int64_t runs = 0;
  for (std::int64_t i = 0; i < draws; ++i) {
    const auto pilot = draw(random, pool.size(), 2 * kPilot);
    const std::vector<std::size_t> first(pilot.begin(), pilot.begin() + kPilot);
    const std::vector<std::size_t> second(pilot.begin() + kPilot, pilot.end());
    const Comparison said = compare(pick(pool, first), pick(pool, second), {});
    for (std::size_t k = 0; k < said.benchmarks.size(); ++k) {
      const auto count = static_cast<std::size_t>(said.benchmarks[k].runs_for_10_percent.value());
      // Where more are stated than there are, those must do.
      const std::size_t used = std::min(count, pool.size() / 2);
      const auto all = draw(random, pool.size(), 2 * used);
      const auto middle = all.begin() + static_cast<std::ptrdiff_t>(used);
      const Comparison done =
          compare(pick(pool, {all.begin(), middle}), pick(pool, {middle, all.end()}, 1.1), {});
      ++asked;
      runs += static_cast<std::int64_t>(count);
      found += done.benchmarks[k].time_verdict == Verdict::slower ? 1 : 0;
    }
  }
  return {{"found", static_cast<double>(found) / static_cast<double>(asked)},
          {"mean_runs_a_side", static_cast<double>(runs) / static_cast<double>(asked)}};
}

/// `positions` and `count` more below `size`, which may come again: for more runs than there are.
std::vector<std::size_t> draw_more(std::mt19937_64& random, std::size_t size,
                                   std::vector<std::size_t> positions, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) positions.push_back(random() % size);
  return positions;
}

/// Runs of both sides, one of each in turn.
void launch_in_turn(Runs& base, Runs& fresh) {
  const auto number = [](std::size_t i) { return std::to_string(1'000'000 + i); };
  for (std::size_t i = 0; i < base.size(); ++i) {
    base[i].started = number(2 * i);
    fresh[i].started = number(2 * i + 1);
  }
}

/// How often a time that is uncertain after `count` runs a side, or pairs, is settled once as many
/// were added as was said. `a` and `b` are the sides of pairs, or one pool of launches twice. The
/// true change of each draw lies anywhere within a factor of exp(`most`).
nlohmann::json of_advice(const Runs& a, const Runs& b, bool paired, std::size_t count,
                         std::int64_t draws, double most) {
  std::mt19937_64 random(count);
  CompareOptions options;
  options.paired = paired;
  std::int64_t settled = 0;
  std::vector<double> added;
  for (std::int64_t i = 0; i < draws; ++i) {
    const double unit = static_cast<double>(random() >> 11U) * 0x1p-53;
    const double factor = std::exp(most * (2 * unit - 1));
    std::vector<std::size_t> base;
    std::vector<std::size_t> fresh;
    const auto compared = [&](std::size_t more) {
      base = draw_more(random, a.size(), std::move(base), more);
      fresh = paired ? base : draw_more(random, b.size(), std::move(fresh), more);
      Runs base_runs = pick(a, base);
      Runs new_runs = pick(b, fresh, factor);
      launch_in_turn(base_runs, new_runs);
      return compare(std::move(base_runs), std::move(new_runs), options);
    };
    const Comparison said = compared(count);
    // One of the uncertain ones: each is followed by itself.
    const std::size_t k = static_cast<std::size_t>(i) % said.benchmarks.size();
    if (said.benchmarks[k].time_verdict != Verdict::uncertain) continue;
    // Above 10,000 nothing is said.
    if (!said.benchmarks[k].runs_more) continue;
    added.push_back(static_cast<double>(*said.benchmarks[k].runs_more));
    const Comparison done = compared(static_cast<std::size_t>(*said.benchmarks[k].runs_more));
    settled += done.benchmarks[k].time_verdict != Verdict::uncertain ? 1 : 0;
  }
  return {{"settled", static_cast<double>(settled) / static_cast<double>(added.size())},
          {"uncertain", added.size()},
          {"median_added", quantile(added, 0.5).value_or(0)}};
}

int calibrate(const std::vector<std::string>& words) {
  if (words.size() != 4) throw Error("give LAUNCHES PAIRS DRAWS");
  const CsvTable launches = read_csv(words[1]);
  const CsvTable pairs = read_csv(words[2]);
  const std::int64_t draws = parse_int("DRAWS", words[3], 1, 1'000'000);
  const Runs pool = read_side(launches, "");
  const Runs a = read_side(pairs, "a");
  const Runs b = read_side(pairs, "b");
  nlohmann::json json = {{"launches", pool.size()}, {"pairs", a.size()}};
  constexpr double kAnyChange = 0.2;
  for (const std::size_t count : std::to_array<std::size_t>({3, 5, 10})) {
    const std::string runs = std::to_string(count);
    json["settled"]["pairs"][runs] = of_advice(a, b, true, count, 2 * draws, kAnyChange);
    json["settled"]["launches in turn"][runs] =
        of_advice(pool, pool, false, count, draws, kAnyChange);
  }
  // Equal builds.
  json["settled as same"]["pairs"] = of_advice(a, b, true, 3, draws, 0);
  json["settled as same"]["launches in turn"] = of_advice(pool, pool, false, 10, draws / 4, 0);
  for (const std::size_t count : std::to_array<std::size_t>({3, 5, 10, 20})) {
    const std::string runs = std::to_string(count);
    const auto launched = [&](Order order, double factor) {
      return of_launches(pool, order, count, draws, factor);
    };
    json["false"]["launches at random"][runs] = launched(Order::random, 1).regressions();
    json["false"]["launches alternating"][runs] = launched(Order::alternating, 1).regressions();
    json["false"]["launches one side after the other"][runs] =
        launched(Order::one_after_the_other, 1).regressions();
    json["false"]["pairs"][runs] = of_pairs(a, b, count, draws, 1).regressions();
    json["found 5 %"]["launches at random"][runs] = launched(Order::random, 1.05).found();
    json["found 10 %"]["launches at random"][runs] = launched(Order::random, 1.1).found();
    json["found 10 %"]["launches alternating"][runs] = launched(Order::alternating, 1.1).found();
    json["found 10 %"]["launches one side after the other"][runs] =
        launched(Order::one_after_the_other, 1.1).found();
    json["found 5 %"]["pairs"][runs] = of_pairs(a, b, count, draws, 1.05).found();
  }
  json["false"]["one launch a side, by history"]["1"] = of_history(pool, draws, 1).regressions();
  json["found 50 %"]["one launch a side, by history"]["1"] = of_history(pool, draws, 1.5).found();
  json["stated runs for 10 %"] = of_statement(pool, draws);
  std::printf("%s\n", json.dump(2).c_str());
  return kFine;
}

}  // namespace
}  // namespace stepscope::results

int main(int argc, char** argv) {
  return stepscope::run_program("calibrate_comparison",
                                [&] { return stepscope::results::calibrate({argv, argv + argc}); });
}
