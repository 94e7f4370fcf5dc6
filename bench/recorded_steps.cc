#include "bench/recorded_steps.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/expected_steps.h"
#include "bench/group_ranges.h"
#include "topologies/step_layout.h"
#include "tracer/capture.h"
#include "tracer/range.h"
#include "tracer/record_function_source.h"

namespace stepscope::bench {
namespace {

tracer::Capture capture_of(const RecordedCase& recorded) {
  std::vector<std::unique_ptr<tracer::CaptureSource>> sources;
  sources.push_back(tracer::make_record_function_source());
  if (recorded.device_source) sources.push_back(recorded.device_source());
  return {{.rank = recorded.communicator.rank(),
           .world_size = recorded.communicator.world_size(),
           .host_buffer_bytes = recorded.buffer_bytes},
          std::move(sources)};
}

tracer::Trace record(const RecordedCase& recorded, const std::string& what, std::int64_t steps,
                     const std::function<void(std::int64_t)>& step) {
  tracer::Capture capture = capture_of(recorded);
  capture.start();
  {
    const tracer::Range model("model " + recorded.model.name);
    const tracer::Range benchmark_case("case " + what);
    for (std::int64_t i = 0; i < steps; ++i) {
      const tracer::Range range("step " + std::to_string(i));
      step(i);
    }
  }
  return capture.stop();
}

}  // namespace

void require_recordable(const RecordedCase& recorded) { capture_of(recorded).start(); }

tracer::ExpectedPlan expected_plan(const RecordedCase& recorded) {
  const topologies::StepConfig& config = recorded.config;
  const std::int64_t rank = recorded.communicator.rank();
  tracer::ExpectedPlan expected;
  expected.world_size = recorded.communicator.world_size();
  expected.ranks[rank] = expected_rank(recorded.model, recorded.plan, rank,
                                       {.optimizer = config.optimizer,
                                        .policy = config.state_policy,
                                        .min_8bit_size = config.min_8bit_size});
  const auto layout = topologies::step_layout(recorded.model, recorded.plan, rank, config.optimizer,
                                              config.state_policy, config.min_8bit_size);
  const auto cut = static_cast<std::int64_t>(layout.borders.blocks.size());
  // Where no border of any rank cuts a block, nothing is exchanged.
  if (topologies::max_over_ranks(recorded.communicator, cut) > 0) {
    expected.collectives.push_back(kBorderCollective);
  }
  return expected;
}

tracer::Trace record_steps(const RecordedCase& recorded, std::int64_t steps,
                           const std::function<void(std::int64_t)>& step) {
  return record(recorded, recorded.benchmark, steps, step);
}

tracer::Trace record_plain_step(const RecordedCase& recorded, const tracer::ExpectedRank& expected,
                                topologies::Communicator& alone) {
  topologies::Model model{.name = "plain local tensors", .parameters = {}};
  for (const tracer::ExpectedTensor& tensor : expected.tensors) {
    model.parameters.push_back({.name = "tensor" + std::to_string(model.parameters.size()),
                                .shape = {tensor.n},
                                .dtype = recorded.config.dtype});
  }
  std::unique_ptr<topologies::ShardedOptimizer> optimizer;
  std::optional<GroupRanges> groups;
  if (!model.parameters.empty()) {
    topologies::StepConfig config = recorded.config;
    config.state_policy = topologies::StatePolicy::local;
    const auto plan = topologies::ShardPlan::make(model, topologies::Topology::single, 1);
    optimizer = topologies::make_sharded_optimizer(model, plan, config, recorded.threads, alone);
    optimizer->restart();
    groups.emplace(*optimizer, config);
  }
  return record(recorded, recorded.benchmark + " on plain tensors", 1, [&](std::int64_t) {
    const tracer::Range phase("phase optimizer");
    if (optimizer != nullptr) optimizer->step();
    recorded.runtime.synchronize();
  });
}

}  // namespace stepscope::bench
