#include "bench/train_case_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "bench/group_ranges.h"
#include "bench/resident_memory.h"
#include "bench/step_trace.h"
#include "bench/training_step.h"
#include "topologies/state_file.h"
#include "tracer/range.h"

namespace stepscope::bench {
namespace {

/// The last loss is taken over so many steps, since that of a single batch is noisy.
constexpr std::size_t kLastSteps = 10;

/// "Clearly below": by a tenth at the least.
constexpr double kLossFraction = 0.9;

class Training {
 public:
  Training(const TrainSetting& setting, const TrainCase& train_case)
      : setting_(setting),
        config_(train_case.config),
        plan_(topologies::ShardPlan::make(setting.network.model(), train_case.plan)) {
    result_.train_case = train_case;
    result_.benchmark = train_case.benchmark_name(setting.network.model().name);
    auto& communicator = setting.communicator;
    topologies::together(communicator, [&] {
      optimizer_ = topologies::make_sharded_optimizer(setting.network.model(), plan_, config_,
                                                      setting.threads, communicator);
    });
    groups_.emplace(*optimizer_, config_);
    step_ =
        std::make_unique<TrainingStep>(setting.network, plan_, config_, *optimizer_, communicator);
    step_->start();
  }

  TrainResult run() {
    const TrainOptions& options = setting_.options;
    result_.untrained_loss = mean_over_ranks(step_->evaluate(batch(0)));
    if (!options.resume.empty()) resume();
    std::int64_t step = result_.resumed_after;
    const std::int64_t first_timed = step + options.warmup_steps;
    const std::int64_t end = first_timed + options.steps;
    timer_.reserve(options.steps);
    {
      const tracer::Range model("model " + setting_.network.model().name);
      const tracer::Range benchmark_case("case " + result_.benchmark);
      for (; step < end && result_.failure.empty(); ++step) {
        if (step == first_timed) reset_peaks();
        take(step, step >= first_timed);
        const std::int64_t done = step + 1 - result_.resumed_after;
        const bool due = options.save_every > 0 && done % options.save_every == 0;
        if (!options.save.empty() && result_.failure.empty() && (due || step + 1 == end)) save();
      }
    }
    finish();
    result_.contracts.benchmark = result_.benchmark;
    if (result_.failure.empty() && options.trace_steps > 0) trace(end);
    return std::move(result_);
  }

 private:
  TextBatch batch(std::int64_t step) const {
    const auto& options = setting_.options;
    const std::int64_t stream = options.same_batches ? 0 : setting_.communicator.rank();
    return setting_.text.batch(step, stream, options.sequences);
  }

  /// The rank's own loss.
  float run_step(std::int64_t step, bool timed) {
    const TextBatch input = batch(step);
    setting_.communicator.barrier();
    // For a profiler's view: opened before the clock starts.
    const tracer::Range range((timed ? "step " : "warm-up ") + std::to_string(step));
    timer_.start();
    const float own = step_->run(input);
    if (timed) timer_.stop();
    return own;
  }

  void take(std::int64_t step, bool timed) {
    const double loss = mean_over_ranks(run_step(step, timed));
    if (timed) result_.losses.push_back(loss);
    if (!std::isfinite(loss)) {
      result_.failure = "the loss of step " + std::to_string(step + 1) + " is not finite";
    }
  }

  /// Behind all figures, and after saving: the recorded steps leave nothing behind but their
  /// traces.
  void trace(std::int64_t first) {
    const RecordedCase recorded{.model = setting_.network.model(),
                                .plan = plan_,
                                .config = config_,
                                .communicator = setting_.communicator,
                                .runtime = setting_.runtime,
                                .threads = setting_.threads,
                                .benchmark = result_.benchmark};
    const auto step = [&](std::int64_t i) { step_->run(batch(first + i)); };
    const auto release = [this] {
      step_.reset();
      groups_.reset();
      optimizer_.reset();
    };
    result_.contracts.ranks = trace_case(recorded, {.steps = setting_.options.trace_steps,
                                                    .run_folder = setting_.run_folder,
                                                    .step = step,
                                                    .release = release});
  }

  /// The same on every rank, to the last bit.
  double mean_over_ranks(float own) {
    const auto bits = static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(own));
    double sum = 0;
    const auto all = setting_.communicator.all_gather(std::span(&bits, 1));
    for (const std::int64_t peer : all) {
      sum += static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(peer)));
    }
    return sum / static_cast<double>(all.size());
  }

  void resume() {
    auto& communicator = setting_.communicator;
    topologies::load_state(setting_.options.resume, setting_.network.model(), plan_, config_,
                           *optimizer_, setting_.runtime, communicator);
    std::int64_t steps = 0;
    for (const auto& shard : optimizer_->shards()) {
      steps = std::max(steps, static_cast<std::int64_t>(shard.tensors.step));
    }
    // A rank may own nothing, and know of no step.
    result_.resumed_after = topologies::max_over_ranks(communicator, steps);
  }

  void save() {
    topologies::save_state(setting_.options.save, setting_.network.model(), plan_, config_,
                           *optimizer_, setting_.runtime, setting_.communicator);
  }

  void reset_peaks() {
    reset_peak_resident();
    setting_.runtime.reset_peak_memory();
  }

  void finish() {
    auto& communicator = setting_.communicator;
    result_.samples = timer_.gather(communicator);
    result_.ranks =
        gather_figures(communicator, measure_rank(*optimizer_, plan_, config_, setting_.runtime,
                                                  communicator.rank(), setting_.threads));
    result_.collectives = step_->collectives();
    if (!result_.failure.empty()) return;
    const auto count = std::min(kLastSteps, result_.losses.size());
    result_.last_loss = std::accumulate(result_.losses.end() - static_cast<std::ptrdiff_t>(count),
                                        result_.losses.end(), 0.0) /
                        static_cast<double>(count);
    if (!(result_.last_loss < kLossFraction * result_.untrained_loss)) {
      result_.failure = "the last loss, " + std::to_string(result_.last_loss) +
                        ", is not clearly below the first, " +
                        std::to_string(result_.untrained_loss);
    }
  }

  const TrainSetting& setting_;
  topologies::StepConfig config_;
  topologies::ShardPlan plan_;
  std::unique_ptr<topologies::ShardedOptimizer> optimizer_;
  std::optional<GroupRanges> groups_;
  std::unique_ptr<TrainingStep> step_;
  StepTimer timer_;
  TrainResult result_;
};

}  // namespace

TrainResult train(const TrainSetting& setting, const TrainCase& train_case) {
  return Training(setting, train_case).run();
}

}  // namespace stepscope::bench
