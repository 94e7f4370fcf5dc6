#pragma once

/// Purpose: one measured case of optimizer_step, and the list of them that a command line asks for.
///
/// Usage:  for (const StepCase& step_case : step_cases(options)) ...

#include <string>
#include <vector>

#include "bench/step_options.h"
#include "topologies/shard_plan.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::bench {

struct StepCase {
  topologies::StepConfig config;
  topologies::Topology topology = topologies::Topology::fsdp2;

  /// What ShardPlan::make takes for this case.
  topologies::PlanOptions plan_options(const StepOptions& options, std::int64_t world_size) const;

  /// OptimizerStep/<subject>/<optimizer>/<topology>/<state policy>/<dtype>/<model>
  std::string benchmark_name(const std::string& model) const;
};

/// All combinations, topology outermost, then dtype, optimizer, state policy. FP32 AdamW comes
/// first in its group, since the others' saving is stated against it.
std::vector<StepCase> step_cases(const StepOptions& options);

}  // namespace stepscope::bench
