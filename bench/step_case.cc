#include "bench/step_case.h"

#include <algorithm>

namespace stepscope::bench {

using topologies::Optimizer;

std::string StepCase::benchmark_name(const std::string& model) const {
  std::string name = "OptimizerStep";
  for (const std::string_view part :
       {topologies::subject_name(config.subject), topologies::optimizer_name(config.optimizer),
        topologies::topology_name(topology), topologies::state_policy_name(config.state_policy),
        kernels::dtype_name(config.dtype), std::string_view(model)}) {
    name += '/';
    name += part;
  }
  return name;
}

topologies::PlanOptions StepCase::plan_options(const StepOptions& options,
                                               std::int64_t world_size) const {
  topologies::PlanOptions plan{.topology = topology, .world_size = world_size};
  if (topology == topologies::Topology::hsdp) plan.replicas = options.replicas;
  if (topology == topologies::Topology::fsdp1) plan.wrapping = options.wrapping;
  return plan;
}

std::vector<StepCase> step_cases(const StepOptions& options) {
  std::vector<Optimizer> optimizers = options.optimizer_list;
  std::stable_partition(optimizers.begin(), optimizers.end(),
                        [](Optimizer optimizer) { return optimizer == Optimizer::AdamW; });
  std::vector<StepCase> cases;
  for (const auto topology : options.topology_list) {
    for (const auto dtype : options.dtype_list) {
      for (const Optimizer optimizer : optimizers) {
        for (const auto policy : options.state_policy_list) {
          // FP32 AdamW is the same under every policy: one case serves them all.
          if (optimizer == Optimizer::AdamW && policy != options.state_policy_list.front())
            continue;
          StepCase step_case;
          step_case.topology = topology;
          topologies::StepConfig& config = step_case.config;
          config.subject = optimizer == Optimizer::AdamW ? topologies::Subject::torch
                                                         : topologies::Subject::native;
          config.optimizer = optimizer;
          config.state_policy = policy;
          config.dtype = dtype;
          config.device = options.device;
          config.hyperparameters = topologies::default_hyperparameters(optimizer);
          config.min_8bit_size = options.min_8bit_size;
          if (options.learning_rate) config.hyperparameters.learning_rate = *options.learning_rate;
          if (options.weight_decay) config.hyperparameters.weight_decay = *options.weight_decay;
          cases.push_back(step_case);
        }
      }
    }
  }
  return cases;
}

}  // namespace stepscope::bench
