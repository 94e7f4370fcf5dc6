#include "bench/step_fixture.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bench/device_source.h"
#include "bench/group_ranges.h"
#include "bench/resident_memory.h"
#include "bench/result_rows.h"
#include "bench/step_trace.h"
#include "core/error.h"
#include "results/percentile.h"
#include "topologies/step_check.h"
#include "tracer/range.h"

namespace stepscope::bench {
namespace {

using topologies::ShardPlan;

class StepFixture {
 public:
  StepFixture(StepSession& session, const StepCase& step_case)
      : session_(session),
        step_case_(step_case),
        plan_(ShardPlan::make(
            session.model,
            step_case.plan_options(session.options, session.communicator.world_size()))) {}

  /// Allocates, checks and warms up. Returns false when the check found a difference, on every
  /// rank.
  bool SetUp() {
    auto& communicator = session_.communicator;
    result_.step_case = step_case_;
    result_.benchmark = step_case_.benchmark_name(session_.model.name);
    for (const CaseResult& earlier : session_.completed) {
      if (earlier.benchmark == result_.benchmark) ++result_.repetition;
    }
    topologies::together(communicator, [&] {
      optimizer_ = topologies::make_sharded_optimizer(session_.model, plan_, step_case_.config,
                                                      session_.threads, communicator);
    });
    const auto check = topologies::check_against_reference(
        *optimizer_, step_case_.config, session_.model, session_.runtime, communicator);
    result_.checked = check.checked;
    if (check.difference) {
      result_.failure = check.difference->what();
      return false;
    }
    timer_.reserve(session_.options.steps);
    reset_peak_resident();
    session_.runtime.reset_peak_memory();
    topologies::together(communicator, [&] {
      for (std::int64_t i = 0; i < session_.options.warmup_steps; ++i) optimizer_->step();
      session_.runtime.synchronize();
    });
    groups_.emplace(*optimizer_, step_case_.config);  // of the steps that have ranges
    return true;
  }

  /// One timed step. Turns with another build begin and end between steps.
  double Step() {
    if (session_.turns.taken() && timed_ % session_.options.turns.steps == 0) begin_turn();
    session_.communicator.barrier();
    // For a profiler's view: opened before the clock starts.
    const tracer::Range step("step " + std::to_string(timed_));
    const tracer::Range phase("phase optimizer");
    timer_.start();
    optimizer_->step();
    session_.runtime.synchronize();
    const double seconds = std::chrono::duration<double>(timer_.stop()).count();
    ++timed_;
    return seconds;
  }

  /// Gathers what every rank measured and hands it to the session.
  CaseResult& TearDown() {
    auto& communicator = session_.communicator;
    result_.ranks = gather_figures(
        communicator, measure_rank(*optimizer_, plan_, step_case_.config, session_.runtime,
                                   communicator.rank(), session_.threads));
    if (result_.failure.empty()) result_.samples = timer_.gather(communicator);
    find_savings();
    result_.contracts.benchmark = result_.benchmark;
    result_.contracts.repetition = result_.repetition;
    if (result_.failure.empty() && session_.options.trace_steps > 0) trace();
    // Still in this build's turn: freeing large tensors takes time.
    release();
    session_.completed.push_back(std::move(result_));
    return session_.completed.back();
  }

 private:
  void release() {
    groups_.reset();
    optimizer_.reset();
  }

  /// The turn in which the case was set up has ended before the first timed step.
  void begin_turn() {
    if (timed_ > 0) session_.turns.end();
    session_.turns.begin();
    topologies::together(session_.communicator, [&] {
      for (std::int64_t i = 0; i < session_.options.turns.dropped; ++i) optimizer_->step();
      session_.runtime.synchronize();
    });
  }

  /// Behind all figures, so that recording is in none of them.
  void trace() {
    const RecordedCase recorded{.model = session_.model,
                                .plan = plan_,
                                .config = step_case_.config,
                                .communicator = session_.communicator,
                                .runtime = session_.runtime,
                                .threads = session_.threads,
                                .benchmark = result_.benchmark,
                                .device_source = device_source(session_.runtime.device())};
    result_.contracts.ranks =
        trace_case(recorded, {.steps = session_.options.trace_steps,
                              .repetition = result_.repetition,
                              .run_folder = session_.run_folder,
                              .step =
                                  [this](std::int64_t) {
                                    const tracer::Range phase("phase optimizer");
                                    optimizer_->step();
                                    session_.runtime.synchronize();
                                  },
                              .release = [this] { release(); }});
  }

  void find_savings() {
    result_.savings.resize(result_.ranks.size());
    for (const CaseResult& earlier : session_.completed) {
      const StepCase& baseline = earlier.step_case;
      if (baseline.config.optimizer != topologies::Optimizer::AdamW ||
          baseline.topology != step_case_.topology ||
          baseline.config.dtype != step_case_.config.dtype || !earlier.failure.empty()) {
        continue;
      }
      for (std::size_t rank = 0; rank < result_.ranks.size(); ++rank) {
        const auto base = earlier.ranks[rank].state_bytes;
        if (base == 0) continue;
        result_.savings[rank] =
            1 - static_cast<double>(result_.ranks[rank].state_bytes) / static_cast<double>(base);
      }
    }
  }

  StepSession& session_;
  StepCase step_case_;
  ShardPlan plan_;
  std::unique_ptr<topologies::ShardedOptimizer> optimizer_;
  std::optional<GroupRanges> groups_;
  CaseResult result_;
  StepTimer timer_;
  std::int64_t timed_ = 0;  ///< steps
};

void publish(benchmark::State& state, const CaseResult& result) {
  const auto counter = [&](const char* name, std::int64_t value) {
    state.counters[name] = static_cast<double>(value);
  };
  for (const auto& [name, percent] : {std::pair("p10_ns", 10), {"p50_ns", 50}, {"p90_ns", 90}}) {
    counter(name, results::percentile(result.samples.step_ns, percent).value_or(0));
  }
  std::int64_t state_bytes = 0;
  std::int64_t peak_bytes = 0;
  for (const RankFigures& rank : result.ranks) {
    state_bytes = std::max(state_bytes, rank.state_bytes);
    peak_bytes = std::max(peak_bytes, rank.peak_allocated_bytes);
  }
  counter("max_state_bytes", state_bytes);
  counter("max_peak_allocated_bytes", peak_bytes);
}

/// As many turns as a case's timed steps take, so that a case that is not timed leaves the other
/// build in step.
void let_turns_pass(const StepSession& session) {
  const auto& options = session.options;
  for (std::int64_t done = 0; done < options.steps; done += options.turns.steps) {
    session.turns.begin();
    if (done + options.turns.steps < options.steps) session.turns.end();
  }
}

void run_case(benchmark::State& state, StepSession& session, const StepCase& step_case) {
  StepFixture fixture(session, step_case);
  session.turns.begin();
  const bool checked = fixture.SetUp();
  session.turns.end();
  if (!checked && session.turns.taken()) let_turns_pass(session);
  if (checked) {
    const tracer::Range model("model " + session.model.name);
    const tracer::Range benchmark_case("case " + step_case.benchmark_name(session.model.name));
    for ([[maybe_unused]] const auto _ : state) state.SetIterationTime(fixture.Step());
  }
  const CaseResult& result = fixture.TearDown();
  if (!checked) state.SkipWithError(result.failure.c_str());
  if (checked) publish(state, result);
  topologies::together(session.communicator, [&] {
    if (session.run_folder != nullptr) write_rows(*session.run_folder, session, result);
  });
  session.turns.end();
}

}  // namespace

void register_step_benchmarks(StepSession& session) {
  for (const StepCase& step_case : step_cases(session.options)) {
    benchmark::RegisterBenchmark(
        step_case.benchmark_name(session.model.name).c_str(),
        [&session, step_case](benchmark::State& state) { run_case(state, session, step_case); })
        ->Iterations(session.options.steps)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace stepscope::bench
