#pragma once

/// Purpose: from a trained case to the rows of the run folder (results/schema.json).
///
/// Usage:  write_train_rows(folder, setting, result, savings);

#include <optional>
#include <vector>

#include "bench/train_case_run.h"
#include "results/run_folder.h"

namespace stepscope::bench {

/// Adds one row of results.csv a rank and one row of samples.csv a timed step. `savings` are by
/// rank, against FP32 AdamW of the same run. Throws Error when the folder cannot be written.
void write_train_rows(results::RunFolder& folder, const TrainSetting& setting,
                      const TrainResult& result, const std::vector<std::optional<double>>& savings);

}  // namespace stepscope::bench
