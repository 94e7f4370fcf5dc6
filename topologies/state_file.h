#pragma once

/// Purpose: saving an optimizer's parameters and state, and going on from them: on the same ranks
/// with the same bits as without the stop, and on other ranks, topologies and wrappings wherever
/// that is exact.
///
/// Usage (all functions are collective):
///     save_state(folder, model, plan, config, *optimizer, *runtime, *communicator);
///     ...
///     auto optimizer = make_sharded_optimizer(model, plan, config, threads, communicator);
///     const LoadedState loaded = load_state(folder, model, plan, config, *optimizer, ...);
///     // the next step is the one after the last step that was saved
///
/// What is promised (docs/state-files.md):
/// - a save that is killed at any moment leaves the state that was in the folder before, or, in a
///   folder that held none, nothing that load_state accepts;
/// - a load changes nothing on any rank unless every rank has read and checked all it needs; where
///   one cannot, all throw that rank's Error;
/// - elements of 8-bit state share an absmax by blocks of 256 and are carried over in whole blocks
///   only. Under `original` blocks start where the parameter does, so any layout can load any
///   other. Under `local` and `global` blocks start with the shard: a layout whose borders cut the
///   blocks of the other is refused. FP32 state can always be carried over;
/// - step counts are kept by parameter. A parameter that had no state and is stepped now starts at
///   step 1; one that had state and is not stepped now is refused.
///
/// Caveats: one job at a time may save to a folder, which all ranks must see (a shared file
/// system). Gradients are not saved. A load needs host memory for one more copy of the rank's
/// parameters and state. The hyperparameters in force are those the optimizer was made
/// with; LoadedState tells those of the save. Not read from the file, because they do not decide
/// what it means: subject, device, and which parameters are frozen.

#include <string>

#include "topologies/communicator.h"
#include "topologies/device_runtime.h"
#include "topologies/model.h"
#include "topologies/shard_plan.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

/// Writes the state that `optimizer` has after its last step to `folder`, which is made if it does
/// not exist; a state that is in it is replaced. Throws the same Error on every rank where one
/// cannot write, and where the ranks do not agree on what they save.
void save_state(const std::string& folder, const Model& model, const ShardPlan& plan,
                const StepConfig& config, const ShardedOptimizer& optimizer, DeviceRuntime& runtime,
                Communicator& communicator);

struct LoadedState {
  kernels::Hyperparameters hyperparameters;  ///< at the time of the save
};

/// Overwrites parameters, state and step counts of `optimizer`, which was made from the same
/// arguments. Throws the same Error on every rank, with nothing changed, where the state is
/// incomplete, damaged, of another model, optimizer, data type or state policy, or cannot be
/// carried over exactly.
LoadedState load_state(const std::string& folder, const Model& model, const ShardPlan& plan,
                       const StepConfig& config, ShardedOptimizer& optimizer,
                       DeviceRuntime& runtime, Communicator& communicator);

}  // namespace stepscope::topologies
