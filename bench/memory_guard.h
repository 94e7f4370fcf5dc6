#pragma once

/// Purpose: refuses a run that cannot fit into memory, before anything is allocated.
///
/// Usage:  require_memory(communicator, runtime, model, options, cases, local_world_size);   //
/// collective
///
/// Caveats: on a CPU the ranks of a host share its memory, on a GPU each has its own device's.
/// Other processes may still take it later.

#include <cstdint>
#include <vector>

#include "bench/step_case.h"
#include "topologies/communicator.h"
#include "topologies/model.h"

namespace stepscope::bench {

/// Throws the same Error on every rank when some rank needs more for its largest case than its
/// device, or its share of its host, can still give. `local_world_size` counts this host's ranks.
void require_memory(topologies::Communicator& communicator,
                    const topologies::DeviceRuntime& runtime, const topologies::Model& model,
                    const StepOptions& options, const std::vector<StepCase>& cases,
                    std::int64_t local_world_size);

}  // namespace stepscope::bench
