#pragma once

/// Purpose: refuses a run that cannot fit into memory, before anything is allocated.
///
/// Usage:  require_memory(session, cases, local_world_size);   // collective
///
/// Caveats: looks at host memory of the CPU path; other processes may still take it later.

#include <cstdint>
#include <vector>

#include "bench/step_case.h"
#include "topologies/communicator.h"
#include "topologies/model.h"

namespace stepscope::bench {

/// Throws the same Error on every rank when the ranks of some host need more for their largest case
/// than that host can still give. `local_world_size` counts the ranks of this host.
void require_memory(topologies::Communicator& communicator, const topologies::Model& model,
                    const std::vector<StepCase>& cases, std::int64_t local_world_size);

}  // namespace stepscope::bench
