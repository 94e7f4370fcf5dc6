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

#include "bench/step_case.h"
#include "bench/step_options.h"
#include "results/run_folder.h"
#include "topologies/communicator.h"
#include "topologies/model.h"

namespace stepscope::bench {

/// Figures of one rank in one case. All in bytes unless named otherwise; gathered as integers, -1
/// for what could not be measured.
struct RankFigures {
  std::int64_t threads = 0;
  std::int64_t local_numel = 0;
  std::int64_t parameters_8bit = 0;
  std::int64_t parameters_fp32 = 0;
  std::int64_t empty_shards = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t moment_bytes = 0;
  std::int64_t state_bytes = 0;
  std::int64_t peak_allocated_bytes = 0;
  std::int64_t peak_reserved_bytes = -1;
  std::int64_t resident_bytes = -1;
  std::int64_t peak_resident_bytes = -1;
  std::int64_t bytes_moved = 0;
};

/// One case, measured once.
struct CaseResult {
  StepCase step_case;
  std::string benchmark;
  std::int64_t repetition = 0;             ///< from 0
  std::string failure;                     ///< why it was not timed; empty when it was
  std::string checked;                     ///< what it was checked against
  std::vector<RankFigures> ranks;          ///< by rank
  std::vector<std::int64_t> step_ns;       ///< per timed step, max over ranks
  std::vector<std::int64_t> slowest_rank;  ///< per timed step
  std::vector<std::int64_t> start_ns;      ///< per timed step, since the first one, rank 0's clock
  std::vector<std::optional<double>> savings;  ///< by rank, against FP32 AdamW of the same run
};

struct StepSession {
  const StepOptions& options;
  const topologies::Model& model;
  topologies::Communicator& communicator;
  topologies::DeviceRuntime& runtime;
  std::int64_t threads = 1;                  ///< threads of this rank
  results::RunFolder* run_folder = nullptr;  ///< rank 0 only; null while only listing
  std::vector<CaseResult> completed = {};    ///< in order; the same on every rank
};

}  // namespace stepscope::bench
