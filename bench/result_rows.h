#pragma once

/// Purpose: from a measured case to the rows of the run folder (results/schema.json).
///
/// Usage:  write_rows(run_folder, session, result);

#include "bench/step_session.h"
#include "results/run_folder.h"

namespace stepscope::bench {

/// Adds one row of results.csv a rank and one row of samples.csv a timed step. Throws Error when
/// the folder cannot be written.
void write_rows(results::RunFolder& folder, const StepSession& session, const CaseResult& result);

}  // namespace stepscope::bench
