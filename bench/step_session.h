#pragma once

/// Purpose: what the cases of one run share: the model, the ranks, the options, what was measured
/// so far, and, on rank 0, the run folder.
///
/// Usage: made once in optimizer_step.cc; StepFixture writes into it, StepReporter reads from it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/case_contracts.h"
#include "bench/rank_figures.h"
#include "bench/step_case.h"
#include "bench/step_options.h"
#include "bench/step_samples.h"
#include "bench/turns.h"
#include "results/run_folder.h"
#include "topologies/communicator.h"
#include "topologies/model.h"

namespace stepscope::bench {

/// One case, measured once.
struct CaseResult {
  StepCase step_case;
  std::string benchmark;
  std::int64_t repetition = 0;     ///< from 0
  std::string failure;             ///< why it was not timed; empty when it was
  std::string checked;             ///< what it was checked against
  std::vector<RankFigures> ranks;  ///< by rank
  StepSamples samples;
  std::vector<std::optional<double>> savings;  ///< by rank, against FP32 AdamW of the same run
  CaseContracts contracts;
};

struct StepSession {
  const StepOptions& options;
  const topologies::Model& model;
  topologies::Communicator& communicator;
  topologies::DeviceRuntime& runtime;
  Turns& turns;
  std::int64_t threads = 1;                  ///< threads of this rank
  results::RunFolder* run_folder = nullptr;  ///< rank 0 only; null while only listing
  std::vector<CaseResult> completed = {};    ///< in order; the same on every rank
};

}  // namespace stepscope::bench
