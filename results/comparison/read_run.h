#pragma once

/// Purpose: reading one run, whatever wrote it.
///
/// Usage:  const MeasuredRun run = read_run("runs/20261201T171500Z-0123abcd4567");
///
/// Caveats: strict. A file that is cut off, torn or in another locale is an Error with file and
/// line, never a shifted value. Columns that are unknown are ignored, and what an older file lacks
/// is absent.

#include <filesystem>
#include <vector>

#include "results/comparison/measured_run.h"

namespace stepscope::results {

/// A run folder, a results.csv or samples.csv alone, or the JSON or CSV file of Google Benchmark.
/// Throws Error when `path` is none of them or is not whole.
MeasuredRun read_run(const std::filesystem::path& path);

/// All of `paths`, in their order, on as many threads as there are cores. Throws the Error of the
/// first path that has one.
std::vector<MeasuredRun> read_runs(const std::vector<std::filesystem::path>& paths);

}  // namespace stepscope::results
