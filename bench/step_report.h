#pragma once

/// Purpose: the table that optimizer_step prints while its cases finish.
///
/// Usage:
///     StepReporter reporter(session);
///     benchmark::RunSpecifiedBenchmarks(&reporter);
///
/// Caveats: rank 0's only; the figures are those of results.csv.

#include <benchmark/benchmark.h>

#include <string>

#include "bench/step_session.h"

namespace stepscope::bench {

/// The line above the table's rows, and one row a measured case. Times in ms; state and peak are
/// those of the rank that has most; numbers of elements with thousands separators.
std::string table_header();
std::string table_row(const CaseResult& result);

class StepReporter final : public benchmark::BenchmarkReporter {
 public:
  explicit StepReporter(const StepSession& session) : session_(session) {}
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  const StepSession& session_;
  std::size_t printed_ = 0;
};

}  // namespace stepscope::bench
