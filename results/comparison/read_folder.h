#pragma once

/// Purpose: reading a run folder, and a results.csv or samples.csv without its folder.
///
/// Usage:  const MeasuredRun run = read_folder("runs/20261201T171500Z-0123abcd4567");
///
/// Caveats: as strict as results/run_folder.py. Of a folder's samples only the number of rows is
/// checked: the medians stand in results.csv.

#include <filesystem>

#include "results/comparison/measured_run.h"

namespace stepscope::results {

/// A folder that is not complete, or was never run, is `unusable` with the reason. Throws Error for
/// a schema version that is not known, other numbers of rows than the manifest says, and doubled or
/// torn rows.
MeasuredRun read_folder(const std::filesystem::path& path);

/// A results.csv or samples.csv alone, of any version: known by its columns. Throws Error when it
/// is neither, and for doubled or torn rows.
MeasuredRun read_table_file(const std::filesystem::path& path);

}  // namespace stepscope::results
