#pragma once

/// Purpose: some steps of a case, recorded after the timed ones, and what the contracts say to
/// them: judged against the shard plan, and against the same step on plain local tensors.
///
/// Usage:
///     const std::vector<RankContracts> ranks = trace_case(session, step_case, plan, optimizer,
///     name);
///
/// Caveats: collective. On the CPU only: what runs on a GPU is recorded from outside (trace_check).

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/step_session.h"
#include "topologies/shard_plan.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::bench {

/// Records StepOptions::trace_steps steps of `optimizer`, which is used up: the plain tensors take
/// its memory. Every rank writes traces/<name>.rank<r>.sqlite into the run folder of rank 0 where
/// its host has that folder. Returns what every rank found, by rank, on every rank; throws the same
/// Error on every rank.
std::vector<RankContracts> trace_case(StepSession& session, const StepCase& step_case,
                                      const topologies::ShardPlan& plan,
                                      std::unique_ptr<topologies::ShardedOptimizer> optimizer,
                                      const std::string& name);

}  // namespace stepscope::bench
