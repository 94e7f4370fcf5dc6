#pragma once

/// Purpose: what the state policy `original` costs beside `global`: both optimizers of a case exist
/// at once and take turns step by step, so that what else the machine does falls on both alike.
///
/// Usage:
///     measure_policy_costs(options, model, communicator, runtime, threads);   // collective
///
/// Caveats: a step's time is that of the slowest rank. Nothing is checked against the reference
/// here, and no run folder is written.

#include <cstdint>

#include "bench/step_options.h"
#include "topologies/communicator.h"
#include "topologies/device_runtime.h"
#include "topologies/model.h"

namespace stepscope::bench {

/// Measures and, on rank 0, prints the table row by row. Collective.
void measure_policy_costs(const StepOptions& options, const topologies::Model& model,
                          topologies::Communicator& communicator,
                          topologies::DeviceRuntime& runtime, std::int64_t threads);

}  // namespace stepscope::bench
