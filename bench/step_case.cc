#include "bench/step_case.h"

#include <algorithm>

namespace stepscope::bench {

using topologies::Optimizer;

std::string StepCase::benchmark_name(const std::string& model) const {
  std::string name = "OptimizerStep";
  for (const std::string_view part :
       {topologies::subject_name(config.subject), topologies::optimizer_name(config.optimizer),
        topologies::topology_name(topology), topologies::state_policy_name(config.state_policy),
        topologies::dtype_name(config.dtype), std::string_view(model)}) {
    name += '/';
    name += part;
  }
  return name;
}

std::vector<StepCase> step_cases(const StepOptions& options) {
  std::vector<Optimizer> optimizers = options.optimizer_list;
  std::stable_partition(optimizers.begin(), optimizers.end(),
                        [](Optimizer optimizer) { return optimizer == Optimizer::AdamW; });
  std::vector<StepCase> cases;
  for (const auto topology : options.topology_list) {
    for (const auto dtype : options.dtype_list) {
      for (const Optimizer optimizer : optimizers) {
        StepCase step_case;
        step_case.topology = topology;
        topologies::StepConfig& config = step_case.config;
        config.subject = optimizer == Optimizer::AdamW ? topologies::Subject::torch
                                                       : topologies::Subject::native;
        config.optimizer = optimizer;
        config.state_policy = options.state_policy;
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
  return cases;
}

}  // namespace stepscope::bench
