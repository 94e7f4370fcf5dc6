#pragma once

/// Purpose: proves, before a case is timed, that the optimizer computes what the plain scalar
/// reference computes, on every element this rank owns.
///
/// Usage:
///     const StepCheck check = check_against_reference(*optimizer, config, model, *runtime,
///     *communicator); if (check.difference) skip(check.difference->what());
///
/// Caveats: leaves the optimizer restarted (step 0). Collective: every rank calls it, works in
/// rounds of bounded length so that none waits long for another, and all learn of the first
/// difference.

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "topologies/communicator.h"
#include "topologies/device_runtime.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

/// Steps taken by the check. Two, because the first one starts from zero state.
inline constexpr std::int64_t kCheckedSteps = 2;

struct StepCheck {
  /// The first difference found, naming rank, parameter and element; the same on every rank.
  std::optional<Error> difference;
  /// A sentence for the results' column `checked`.
  std::string checked;
};

/// The reference is bnb-cpu on a CPU and bnb-cuda on a GPU. Native subjects must agree in every bit
/// of parameter and state. libtorch's fused AdamW computes the same bits in its vectorized loop and
/// may differ by a few units in the last place elsewhere (step_check.cc says why). Throws Error
/// when a peer is lost.
StepCheck check_against_reference(ShardedOptimizer& optimizer, const StepConfig& config,
                                  const Model& model, DeviceRuntime& runtime,
                                  Communicator& communicator);

}  // namespace stepscope::topologies
