#pragma once

/// Purpose: some steps of a case, recorded behind its figures, and what the contracts say to them:
/// judged against the shard plan, and against the same step on plain local tensors.
///
/// Usage:
///     const std::vector<RankContracts> ranks =
///         trace_case(recorded, {.steps = 3, .run_folder = folder, .step = ..., .release = ...});
///
/// Caveats: collective. Where a rank cannot record its device, no rank records, and every contract
/// is unverified for that reason.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/case_contracts.h"
#include "bench/recorded_steps.h"
#include "results/run_folder.h"

namespace stepscope::bench {

struct TraceRequest {
  std::int64_t steps = 1;
  std::int64_t repetition = 0;                     ///< of the case in this run
  const results::RunFolder* run_folder = nullptr;  ///< on rank 0; null elsewhere
  std::function<void(std::int64_t)> step = {};     ///< as for record_steps
  std::function<void()> release = {};              ///< the plain tensors take its memory
};

/// Records the steps that `request` asks for. Every rank writes traces/<name>.rank<r>.sqlite into
/// the run folder of rank 0 where its host has that folder; the name is the benchmark's, with
/// points. Returns what every rank found, by rank, on every rank; throws the same Error on every
/// rank.
std::vector<RankContracts> trace_case(const RecordedCase& recorded, const TraceRequest& request);

}  // namespace stepscope::bench
