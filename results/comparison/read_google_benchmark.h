#pragma once

/// Purpose: reading what Google Benchmark writes with --benchmark_out, as JSON or as CSV.
///
/// Usage:  const MeasuredRun run = read_google_benchmark_json("step.json");
///
/// Caveats: rows of one name are its repetitions; they share the luck of one process, so the file
/// is one run. Aggregates (mean, median, stddev, cv, BigO) are left out, unless nothing else was
/// kept (--benchmark_report_aggregates_only): then the median stands for the benchmark.

#include <filesystem>

#include "results/comparison/measured_run.h"

namespace stepscope::results {

/// Whether the file has the header of Google Benchmark's CSV, behind the lines on the machine that
/// may come before it. Throws Error when it cannot be read.
bool is_google_benchmark_csv(const std::filesystem::path& path);

/// Throws Error with file, and line where there is one, for a file that is cut off, for a time that
/// is no number, and for an unknown unit.
MeasuredRun read_google_benchmark_csv(const std::filesystem::path& path);
MeasuredRun read_google_benchmark_json(const std::filesystem::path& path);

}  // namespace stepscope::results
