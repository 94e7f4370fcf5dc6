#include "bench/policy_cost.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/paired_ratio.h"
#include "bench/step_case.h"
#include "bench/step_samples.h"
#include "results/percentile.h"
#include "topologies/planned_bytes.h"

namespace stepscope::bench {
namespace {

using topologies::StatePolicy;

/// Of one case: an optimizer, topology and data type.
struct PolicyCost {
  std::int64_t cut_blocks = 0;   ///< the most of a rank
  std::int64_t sent_bytes = 0;   ///< a step, the most of a rank
  std::int64_t global_ns = 0;    ///< median step
  std::int64_t original_ns = 0;  ///< likewise
  PairedRatio ratio;             ///< original / global
};

constexpr const char* kLayout = "{:<10} {:<6} {:<5} {:>6} {:>9} {:>11} {:>12} {:>7}  {}\n";

/// One of the two optimizers of a case.
struct Side {
  std::unique_ptr<topologies::ShardedOptimizer> optimizer;
  StepTimer timer;
};

PolicyCost measure_case(const StepOptions& options, const topologies::Model& model,
                        topologies::Communicator& communicator, topologies::DeviceRuntime& runtime,
                        std::int64_t threads, const StepCase& step_case) {
  const auto plan = topologies::ShardPlan::make(
      model, step_case.plan_options(options, communicator.world_size()));
  std::array<Side, 2> sides;  // global, original
  for (std::size_t i = 0; i < sides.size(); ++i) {
    topologies::StepConfig config = step_case.config;
    config.state_policy = i == 0 ? StatePolicy::global : StatePolicy::original;
    topologies::together(communicator, [&] {
      sides[i].optimizer =
          topologies::make_sharded_optimizer(model, plan, config, threads, communicator);
      sides[i].optimizer->restart();
    });
    sides[i].timer.reserve(options.steps);
  }
  for (std::int64_t step = 0; step < options.warmup_steps + options.steps; ++step) {
    for (const std::size_t turn : {0, 1}) {
      // Whoever comes second finds the caches as the other left them: that is changed every time.
      Side& side = sides[(turn + static_cast<std::size_t>(step)) % 2];
      communicator.barrier();
      side.timer.start();
      side.optimizer->step();
      runtime.synchronize();
      if (step >= options.warmup_steps) side.timer.stop();
    }
  }
  PolicyCost cost;
  const std::vector<std::int64_t> global = sides[0].timer.gather(communicator).step_ns;
  const std::vector<std::int64_t> original = sides[1].timer.gather(communicator).step_ns;
  cost.global_ns = *results::percentile(global, 50);
  cost.original_ns = *results::percentile(original, 50);
  cost.ratio = paired_ratio(original, global);
  const auto bytes = topologies::planned_bytes(model, plan, communicator.rank(),
                                               {.optimizer = step_case.config.optimizer,
                                                .dtype = step_case.config.dtype,
                                                .policy = StatePolicy::original,
                                                .min_8bit_size = step_case.config.min_8bit_size});
  cost.cut_blocks = topologies::max_over_ranks(communicator, bytes.cut_blocks);
  cost.sent_bytes = topologies::max_over_ranks(communicator, bytes.border_traffic);
  return cost;
}

std::string milliseconds(std::int64_t ns) {
  return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6);
}

}  // namespace

void measure_policy_costs(const StepOptions& options, const topologies::Model& model,
                          topologies::Communicator& communicator,
                          topologies::DeviceRuntime& runtime, std::int64_t threads) {
  const bool root = communicator.rank() == 0;
  if (root) {
    fmt::print("{}, {} ranks, {} pairs of steps; times in ms\n\n", model.name,
               communicator.world_size(), options.steps);
    fmt::print(kLayout, "optimizer", "topo", "dtype", "cut", "sent B", "global p50", "original p50",
               "ratio", "95 % interval");
    std::fflush(stdout);
  }
  for (const StepCase& step_case : step_cases(options)) {
    if (step_case.config.state_policy != StatePolicy::original) continue;
    const PolicyCost cost = measure_case(options, model, communicator, runtime, threads, step_case);
    if (!root) continue;
    fmt::print(kLayout, topologies::optimizer_name(step_case.config.optimizer),
               topologies::topology_name(step_case.topology),
               kernels::dtype_name(step_case.config.dtype), cost.cut_blocks, cost.sent_bytes,
               milliseconds(cost.global_ns), milliseconds(cost.original_ns),
               fmt::format("{:.3f}", cost.ratio.median),
               fmt::format("{:.3f} to {:.3f}", cost.ratio.low, cost.ratio.high));
    std::fflush(stdout);
  }
}

}  // namespace stepscope::bench
