// recording_cost: what recording a step costs, recorded and unrecorded steps by turns.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/group_ranges.h"
#include "bench/option_values.h"
#include "bench/recorded_steps.h"
#include "bench/step_samples.h"
#include "bench/usable_cores.h"
#include "core/command_line.h"
#include "core/program.h"
#include "kernels/thread_pool.h"
#include "results/percentile.h"
#include "topologies/load_model.h"
#include "topologies/rendezvous.h"
#include "tracer/range.h"

namespace stepscope::bench {
namespace {

using topologies::Optimizer;

constexpr const char* kFooter = R"(Examples:
  .venv/bin/torchrun --standalone --no-python --nproc-per-node 2 build/bin/recording_cost
  torchrun ... recording_cost --model tiny --pairs 200 --at-most 2
  torchrun ... recording_cost --model tiny --pairs 2000 --group-range

Of each pair of steps one is recorded, as for the contracts, and one is not; the order changes from pair to pair. With
--group-range neither is recorded, and one of the two has the range of its parameter group, which every timed step has. A
sample is the time of a step as the slowest rank saw it. What is done with the records after a step is not in it.
Exit code: 0 fine; 1 recording slows a case's step by more than --at-most percent; 2 could not run.)";

struct Options {
  std::string model = "gpt2";
  std::vector<Optimizer> optimizer_list;
  std::int64_t pairs = 50;
  std::int64_t threads = 0;
  bool group_range = false;
  double at_most_percent = -1;  ///< below 0: any
};

std::optional<Options> parse(int argc, const char* const* argv) {
  Options options;
  std::vector<std::string> optimizers = {"AdamW", "AdamW8bit", "Lion8bit"};
  std::string pairs, threads;
  CLI::App app("Measures what recording a step of a sharded optimizer costs, on the CPU.",
               "recording_cost");
  app.footer(kFooter);
  app.add_option("--model", options.model, "as for optimizer_step (default gpt2)");
  app.add_option("--optimizer", optimizers, "AdamW,AdamW8bit,Lion8bit (default all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--pairs", pairs, "steps of each kind (default 50)");
  app.add_option("--threads", threads, "threads a rank (default: cores / ranks of this host)");
  app.add_flag("--group-range", options.group_range,
               "measure what the group's range costs in place of recording");
  app.add_option("--at-most", options.at_most_percent,
                 "percent by which recording may slow the median step (default: any)")
      ->check(CLI::Range(0.0, 1000.0));
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  options.optimizer_list = parse_list<Optimizer>(optimizers, topologies::parse_optimizer);
  options.pairs = whole_number("--pairs", pairs, 50, 1, 100'000);
  options.threads = whole_number("--threads", threads, 0, 1, kernels::ThreadPool::kMaxThreads);
  return options;
}

struct Cost {
  StepSamples with, without;
};

Cost measure(const RecordedCase& recorded, topologies::ShardedOptimizer& optimizer,
             const Options& options) {
  const std::int64_t pairs = options.pairs;
  StepTimer with, without;
  with.reserve(pairs);
  without.reserve(pairs);
  const auto step = [&](StepTimer& timer) {
    recorded.communicator.barrier();
    timer.start();
    {
      const tracer::Range phase("phase optimizer");
      optimizer.step();
    }
    timer.stop();
  };
  std::optional<GroupRanges> groups;
  if (!options.group_range) groups.emplace(optimizer, recorded.config);  // of both
  const auto step_with = [&] {
    if (options.group_range) {
      groups.emplace(optimizer, recorded.config);
      step(with);
      groups.reset();
    } else {
      record_steps(recorded, 1, [&](std::int64_t) { step(with); });
    }
  };
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    if (pair % 2 == 0) step(without);
    step_with();
    if (pair % 2 == 1) step(without);
  }
  return {with.gather(recorded.communicator), without.gather(recorded.communicator)};
}

double ratio(std::int64_t value, std::int64_t base) {
  return static_cast<double>(value) / static_cast<double>(std::max<std::int64_t>(base, 1));
}

/// Prints a line; the percent by which the median step is slower.
double report(const std::string& name, const Cost& cost) {
  const auto median = [](const StepSamples& samples) {
    return results::percentile(samples.step_ns, 50).value_or(0);
  };
  const auto least = [](const StepSamples& samples) {
    return *std::min_element(samples.step_ns.begin(), samples.step_ns.end());
  };
  const std::int64_t with = median(cost.with);
  const std::int64_t without = median(cost.without);
  const auto percent = [](double ratio) { return 100 * (ratio - 1); };
  const double slower = percent(ratio(with, without));
  fmt::print("{:<18} {:>6} {:>12.3f} {:>12.3f} {:>+9.2f} % {:>+9.2f} %\n", name,
             cost.with.step_ns.size(), static_cast<double>(without) / 1e6,
             static_cast<double>(with) / 1e6, slower,
             percent(ratio(least(cost.with), least(cost.without))));
  std::fflush(stdout);
  return slower;
}

int run(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) return kFine;
  const topologies::Model model = topologies::load_model(options->model);
  const auto rendezvous = topologies::rendezvous_from_environment();
  const auto runtime = topologies::open_device(topologies::Device::cpu, rendezvous.local_rank);
  const auto communicator = topologies::connect_gloo(rendezvous, {});
  const auto plan =
      topologies::ShardPlan::make(model, topologies::Topology::fsdp2, communicator->world_size());
  const std::int64_t threads =
      options->threads > 0
          ? options->threads
          : std::max<std::int64_t>(1, usable_cores() / rendezvous.local_world_size);
  if (communicator->rank() == 0) {
    fmt::print("{} on {} ranks\n{:<18} {:>6} {:>12} {:>12} {:>11} {:>11}\n", model.name,
               communicator->world_size(), "subject/optimizer", "pairs", "p50 off ms", "p50 on ms",
               "median", "least");
  }
  bool too_slow = false;
  for (const Optimizer optimizer : options->optimizer_list) {
    topologies::StepConfig config;
    config.optimizer = optimizer;
    config.subject =
        optimizer == Optimizer::AdamW ? topologies::Subject::torch : topologies::Subject::native;
    config.hyperparameters = topologies::default_hyperparameters(optimizer);
    const RecordedCase recorded{.model = model,
                                .plan = plan,
                                .config = config,
                                .communicator = *communicator,
                                .runtime = *runtime,
                                .threads = threads,
                                .benchmark = "recording cost"};
    std::unique_ptr<topologies::ShardedOptimizer> sharded;
    topologies::together(*communicator, [&] {
      sharded = topologies::make_sharded_optimizer(model, plan, config, threads, *communicator);
      sharded->restart();
    });
    constexpr int kWarmUp = 4;
    for (int i = 0; i < kWarmUp; ++i) sharded->step();
    const Cost cost = measure(recorded, *sharded, *options);
    if (communicator->rank() != 0) continue;
    const std::string name = std::string(topologies::subject_name(config.subject)) + "/" +
                             std::string(topologies::optimizer_name(optimizer));
    const double slower = report(name, cost);
    too_slow = too_slow || (options->at_most_percent >= 0 && slower > options->at_most_percent);
  }
  return topologies::max_over_ranks(*communicator, too_slow ? 1 : 0) > 0 ? kCheckFailed : kFine;
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  return stepscope::run_program("recording_cost",
                                [&] { return stepscope::bench::run(argc, argv); });
}
