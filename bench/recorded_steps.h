#pragma once

/// Purpose: traces of a case's steps, and what its contracts hold them to: the shard plan, and the
/// same step on plain local tensors.
///
/// Usage:
///     const tracer::ExpectedPlan expected = expected_plan(recorded);             // collective
///     const tracer::Trace trace = record_steps(recorded, 3, [&](std::int64_t) { ... });
///     const tracer::Trace plain = record_plain_step(recorded, *expected.rank(rank), *alone);
///     const auto judgement = tracer::judge(trace, {.plan = &expected, .against = &plain});
///
/// Caveats: what a device does is recorded where the case has a source for it; ask
/// require_recordable first.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "bench/device_source.h"
#include "topologies/communicator.h"
#include "topologies/device_runtime.h"
#include "topologies/model.h"
#include "topologies/shard_plan.h"
#include "topologies/sharded_optimizer.h"
#include "tracer/expected_plan.h"
#include "tracer/trace.h"

namespace stepscope::bench {

/// A case, as far as its traces and contracts depend on it.
struct RecordedCase {
  const topologies::Model& model;
  const topologies::ShardPlan& plan;
  const topologies::StepConfig& config;
  topologies::Communicator& communicator;
  topologies::DeviceRuntime& runtime;
  std::int64_t threads;   ///< of this rank
  std::string benchmark;  ///< its name
  /// For the records. Only what is written becomes resident, and a training step of many layers has
  /// many operators.
  std::size_t buffer_bytes = std::size_t{256} << 20;
  DeviceSource device_source = {};  ///< of a device other than the CPU
};

/// Throws Error in one line where the device cannot be recorded here: no CUPTI, or another profiler
/// has it. Records nothing.
void require_recordable(const RecordedCase& recorded);

/// What the plan promises of this rank's step. Collective.
tracer::ExpectedPlan expected_plan(const RecordedCase& recorded);

/// The trace of `step(0)` to `step(steps - 1)`, each in a range of its own; `step` opens those of
/// its phases.
tracer::Trace record_steps(const RecordedCase& recorded, std::int64_t steps,
                           const std::function<void(std::int64_t)>& step);

/// The trace of one step over every tensor that the rank steps, whole and alone: no shards, no
/// other ranks. `alone` is a communicator of this rank only.
tracer::Trace record_plain_step(const RecordedCase& recorded, const tracer::ExpectedRank& expected,
                                topologies::Communicator& alone);

}  // namespace stepscope::bench
