#pragma once

/// Purpose: the command line of optimizer_step.
///
/// Usage:
///     const std::optional<StepOptions> options = parse_step_options(argc, argv);
///     if (!options) return kFine;   // --help or --version was printed
///
/// Caveats: every rank must be given the same options; the program checks that they are.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/turns.h"
#include "kernels/shard_tensors.h"
#include "topologies/communicator.h"
#include "topologies/sharded_optimizer.h"
#include "topologies/wrapping.h"

namespace stepscope::bench {

struct StepOptions {
  std::string model = "gpt2";
  std::vector<topologies::Optimizer> optimizer_list;
  std::vector<topologies::Topology> topology_list;
  std::vector<kernels::DType> dtype_list;
  std::vector<topologies::StatePolicy> state_policy_list;
  std::string wrap = "per-module";  ///< as given
  topologies::Wrapping wrapping;    ///< units of fsdp1
  std::int64_t replicas = 1;        ///< copies that hsdp keeps
  topologies::Device device = topologies::Device::cpu;
  std::int64_t steps = 100;
  std::int64_t warmup_steps = 10;
  std::int64_t trace_steps = 3;  ///< recorded after the timed ones; 0: none
  std::int64_t threads = 0;      ///< threads a rank; 0: usable cores / ranks of this host
  std::int64_t min_8bit_size = topologies::kMin8bitSize;
  std::string substitute;  ///< what this job is instead of a larger one; empty: it is none
  std::optional<double> learning_rate;  ///< where not given: the optimizer's default
  std::optional<double> weight_decay;   ///< likewise
  bool quick = false;
  bool policy_cost = false;  ///< only compare `original` with `global`, step by step
  bool rows_only = false;    ///< on stdout; the run folder holds everything
  std::string out;           ///< run folder; empty: runs/<utc>-<commit>
  topologies::Timeouts timeouts;
  TurnOptions turns;                         ///< with another build on this host
  std::vector<std::string> benchmark_flags;  ///< --benchmark_*, screened
};

/// Reads the command line. std::nullopt: --help or --version was answered on stdout. Throws Error
/// for what cannot be understood.
std::optional<StepOptions> parse_step_options(int argc, const char* const* argv);

}  // namespace stepscope::bench
