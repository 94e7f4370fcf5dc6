#pragma once

/// Purpose: what a comparison needs to know of one run, wherever it was read from.
///
/// Usage:  for (const BenchmarkRun& benchmark : run.benchmarks) use(benchmark.p50_ns);
///
/// Caveats: samples are not kept, so that hundreds of runs fit into memory. Times are doubles here:
/// foreign files hold fractions of nanoseconds, and all that is done with them is to take
/// logarithms and to show them. What a file does not say is nothing, never 0.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stepscope::results {

/// What must agree before two figures may be compared: the name of a condition and its value.
/// A condition that a file does not name is absent.
using Conditions = std::map<std::string, std::string>;

/// One repetition in a file of Google Benchmark, in nanoseconds per iteration.
struct RepetitionTime {
  double real_ns = 0;
  std::optional<double> cpu_ns;
};

/// One benchmark in one run.
struct BenchmarkRun {
  std::string benchmark;
  Conditions conditions;
  std::string status = "ok";                         ///< ok, failed or skipped
  std::string status_reason;                         ///< empty when it is ok
  std::optional<double> p50_ns;                      ///< median step time
  std::optional<double> p90_ns;                      ///< 90th percentile of the step time
  std::optional<std::int64_t> state_bytes;           ///< on the rank that has most
  std::optional<std::int64_t> peak_allocated_bytes;  ///< likewise
  std::string contract;  ///< ok, broken or unverified over all ranks; empty where not said
  std::vector<RepetitionTime> repetitions;  ///< of Google Benchmark
};

struct MeasuredRun {
  std::filesystem::path path;
  std::string commit;      ///< of the build, "-dirty" behind it where it was; empty: not said
  std::string library;     ///< "bitsandbytes 0.50.2 (0123abcd)" where one was measured; else empty
  std::string pair;        ///< name of the pair of turns it is one side of; empty: not said
  std::string started;     ///< when, as text that sorts by time; empty: not said
  std::string substitute;  ///< what it is instead of a larger job; empty where it is none
  std::string unusable;    ///< why nothing of it may be compared; empty where it may
  std::vector<BenchmarkRun> benchmarks;  ///< in file order, each name once
};

/// The benchmark of that name, or null.
const BenchmarkRun* find_benchmark(const MeasuredRun& run, const std::string& name);

/// The same, added at the end where it is not there yet.
BenchmarkRun& find_or_add_benchmark(MeasuredRun& run, const std::string& name);

/// The `fraction`-quantile of `values`, linear between order statistics as all percentiles of the
/// project are, with fractions of nanoseconds kept; nothing where there are none.
std::optional<double> quantile(std::vector<double> values, double fraction);

}  // namespace stepscope::results
