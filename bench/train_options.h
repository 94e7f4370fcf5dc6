#pragma once

/// Purpose: the command line of train_step, and the cases that it asks for.
///
/// Usage:
///     const std::optional<TrainOptions> options = parse_train_options(argc, argv);
///     if (!options) return kFine;   // --help or --version was printed
///     for (const TrainCase& train_case : train_cases(*options)) ...
///
/// Caveats: every rank must be given the same options; the program checks that they are.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/train_network.h"
#include "topologies/communicator.h"
#include "topologies/shard_plan.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::bench {

struct TrainOptions {
  std::string text = "/usr/share/common-licenses/GPL-3";  ///< file
  NetworkSize size;
  std::int64_t sequences = 8;  ///< a rank and step
  bool same_batches = false;   ///< every rank learns from the same bytes
  std::vector<topologies::Optimizer> optimizer_list;
  std::vector<topologies::Topology> topology_list;
  std::vector<kernels::DType> dtype_list;
  topologies::StatePolicy state_policy = topologies::StatePolicy::global;
  std::int64_t replicas = 1;  ///< copies that hsdp keeps
  std::int64_t steps = 100;
  std::int64_t warmup_steps = 10;
  std::int64_t trace_steps = 3;         ///< recorded after the timed ones; 0: none
  std::int64_t threads = 0;             ///< threads a rank; 0: usable cores / ranks of this host
  std::optional<double> learning_rate;  ///< where not given: the optimizer's default
  std::string save;                     ///< folder; empty: nothing is saved
  std::int64_t save_every = 0;          ///< steps between saves; 0: at the end only
  std::string resume;                   ///< folder; empty: from the start
  std::string out;                      ///< run folder; empty: runs/<utc>-<commit>
  topologies::Timeouts timeouts;
};

/// What is trained once, from the same start.
struct TrainCase {
  topologies::StepConfig config;
  topologies::PlanOptions plan;  ///< world size as given to train_cases

  /// TrainStep/<subject>/<optimizer>/<topology>/<state policy>/<dtype>/<model>
  std::string benchmark_name(const std::string& model) const;
};

/// All combinations, topology outermost, then dtype, then optimizer; FP32 AdamW first, because the
/// others are compared with it. Under fsdp1 the units are the network's own.
std::vector<TrainCase> train_cases(const TrainOptions& options, const TrainNetwork& network,
                                   std::int64_t world_size);

/// Reads the command line. std::nullopt: --help or --version was answered on stdout. Throws Error
/// for what cannot be understood.
std::optional<TrainOptions> parse_train_options(int argc, const char* const* argv);

}  // namespace stepscope::bench
