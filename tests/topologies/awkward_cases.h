#pragma once

/// Purpose: the model and the optimizer with which the tests look for what goes wrong at borders.
///
/// Usage:
///     const StepConfig config = awkward_config(Optimizer::Lion8bit, DType::bf16,
///     StatePolicy::original); run(awkward_model(), options, config);

#include "kernels/shard_tensors.h"
#include "topologies/model.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

inline StepConfig awkward_config(Optimizer optimizer, kernels::DType dtype, StatePolicy policy) {
  StepConfig config;
  config.optimizer = optimizer;
  config.subject = optimizer == Optimizer::AdamW ? Subject::torch : Subject::native;
  config.state_policy = policy;
  config.dtype = dtype;
  config.hyperparameters = default_hyperparameters(optimizer);
  config.hyperparameters.learning_rate = 0.01;
  config.hyperparameters.weight_decay = 0.1;
  // Below 4096, so that small parameters have blocks that three and more ranks share.
  config.min_8bit_size = 512;
  return config;
}

/// Shapes whose shards begin and end inside blocks, and some that do not.
inline Model awkward_model() {
  return {.name = "awkward",
          .parameters = {{.name = "m.a", .shape = {33, 257}},
                         {.name = "m.b", .shape = {7, 700}},
                         {.name = "n.c", .shape = {4097}},
                         {.name = "n.small", .shape = {100, 3}},
                         {.name = "o.thin", .shape = {600}},
                         {.name = "o.blocks", .shape = {16, 512}},
                         {.name = "o.row", .shape = {1, 5000}}}};
}

}  // namespace stepscope::topologies
