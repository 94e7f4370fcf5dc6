#pragma once

/// Purpose: training of one case, from the start or from a saved state, measured step by step.
///
/// Usage:
///     const TrainResult result = train(setting, train_case);   // collective
///     if (!result.failure.empty()) ...
///
/// Caveats: collective. A sample is the time of a whole training step as the slowest rank saw it;
/// the ranks start a step together, and saving lies between steps.

#include <cstdint>
#include <string>
#include <vector>

#include "bench/case_contracts.h"
#include "bench/rank_figures.h"
#include "bench/step_samples.h"
#include "bench/train_options.h"
#include "bench/train_text.h"
#include "results/run_folder.h"
#include "topologies/unit_exchange.h"

namespace stepscope::bench {

/// What the cases of one run share.
struct TrainSetting {
  const TrainOptions& options;
  const TrainNetwork& network;
  const TrainText& text;
  topologies::Communicator& communicator;
  topologies::DeviceRuntime& runtime;
  std::int64_t threads = 1;                        ///< threads of this rank
  const results::RunFolder* run_folder = nullptr;  ///< rank 0 only
};

/// Losses are means over the ranks, in nats a byte.
struct TrainResult {
  TrainCase train_case;
  std::string benchmark;
  std::string failure;             ///< why training is no success; empty when it is
  std::int64_t resumed_after = 0;  ///< steps of the state that training went on from
  double untrained_loss = 0;       ///< of the start's parameters on the first step's batch
  std::vector<double> losses;      ///< of the timed steps, before their updates
  double last_loss = 0;            ///< mean over the last ten of `losses`, or all
  StepSamples samples;
  std::vector<RankFigures> ranks;                         ///< by rank
  std::vector<topologies::CollectiveRecord> collectives;  ///< of one step, on rank 0
  CaseContracts contracts;                                ///< of steps behind the timed ones
};

/// Trains. Throws Error where a state cannot be read or saved, or a peer is lost.
TrainResult train(const TrainSetting& setting, const TrainCase& train_case);

}  // namespace stepscope::bench
