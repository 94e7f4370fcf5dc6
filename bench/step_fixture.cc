#include "bench/step_fixture.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "bench/resident_memory.h"
#include "bench/result_rows.h"
#include "core/error.h"
#include "results/percentile.h"
#include "topologies/step_check.h"

namespace stepscope::bench {
namespace {

using Clock = std::chrono::steady_clock;
using topologies::ShardPlan;

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

/// The members of RankFigures, once, for gathering.
constexpr std::int64_t RankFigures::* kFigures[] = {&RankFigures::threads,
                                                    &RankFigures::local_numel,
                                                    &RankFigures::parameters_8bit,
                                                    &RankFigures::parameters_fp32,
                                                    &RankFigures::empty_shards,
                                                    &RankFigures::parameter_bytes,
                                                    &RankFigures::gradient_bytes,
                                                    &RankFigures::moment_bytes,
                                                    &RankFigures::state_bytes,
                                                    &RankFigures::peak_allocated_bytes,
                                                    &RankFigures::peak_reserved_bytes,
                                                    &RankFigures::resident_bytes,
                                                    &RankFigures::peak_resident_bytes,
                                                    &RankFigures::bytes_moved};

std::vector<RankFigures> gather_figures(topologies::Communicator& communicator,
                                        const RankFigures& mine) {
  std::vector<std::int64_t> numbers;
  for (const auto figure : kFigures) numbers.push_back(mine.*figure);
  const auto all = communicator.all_gather(numbers);
  std::vector<RankFigures> ranks(static_cast<std::size_t>(communicator.world_size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    ranks[i / std::size(kFigures)].*kFigures[i % std::size(kFigures)] = all[i];
  }
  return ranks;
}

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
    const auto steps = static_cast<std::size_t>(session_.options.steps);
    own_ns_.reserve(steps);
    start_ns_.reserve(steps);
    reset_peak_resident();
    session_.runtime.reset_peak_memory();
    topologies::together(communicator, [&] {
      for (std::int64_t i = 0; i < session_.options.warmup_steps; ++i) optimizer_->step();
      session_.runtime.synchronize();
    });
    return true;
  }

  /// One timed step.
  double Step() {
    session_.communicator.barrier();
    const auto begin = Clock::now();
    optimizer_->step();
    session_.runtime.synchronize();
    const auto end = Clock::now();
    if (own_ns_.empty()) first_begin_ = begin;
    own_ns_.push_back(nanoseconds(end - begin));
    start_ns_.push_back(nanoseconds(begin - first_begin_));
    return std::chrono::duration<double>(end - begin).count();
  }

  /// Gathers what every rank measured and hands it to the session.
  CaseResult& TearDown() {
    result_.ranks = gather_figures(session_.communicator, figures());
    if (result_.failure.empty()) gather_samples();
    find_savings();
    session_.completed.push_back(std::move(result_));
    return session_.completed.back();
  }

 private:
  RankFigures figures() const {
    const auto& config = step_case_.config;
    const auto bytes = optimizer_->measured_bytes();
    RankFigures figures;
    figures.threads = session_.threads;
    figures.local_numel = plan_.local_numel(session_.communicator.rank());
    for (const auto& local : plan_.local_tensors(session_.communicator.rank())) {
      if (local.ranges.empty()) ++figures.empty_shards;
    }
    if (topologies::asks_8bit(config.optimizer)) count_formats(figures);
    figures.parameter_bytes = bytes.parameter;
    figures.gradient_bytes = bytes.gradient;
    figures.moment_bytes = bytes.moment;
    figures.state_bytes = bytes.state();
    const auto peak = session_.runtime.peak_memory();
    figures.peak_allocated_bytes = peak.allocated;
    figures.peak_reserved_bytes = peak.reserved.value_or(-1);
    figures.resident_bytes = resident_bytes().value_or(-1);
    figures.peak_resident_bytes = peak_resident_bytes().value_or(-1);
    figures.bytes_moved = optimizer_->bytes_moved();
    return figures;
  }

  /// A tensor that is stepped in several pieces (state policy original) counts once.
  void count_formats(RankFigures& figures) const {
    std::set<std::size_t> fp32;
    std::set<std::size_t> blockwise;
    for (const auto& shard : optimizer_->shards()) {
      // Nothing but padding: the piece belongs to no parameter.
      if (shard.ranges.empty()) continue;
      const bool is_fp32 = shard.tensors.format == kernels::StateFormat::fp32;
      (is_fp32 ? fp32 : blockwise).insert(shard.ranges.front().parameter);
    }
    figures.parameters_fp32 = static_cast<std::int64_t>(fp32.size());
    figures.parameters_8bit = static_cast<std::int64_t>(blockwise.size());
  }

  void gather_samples() {
    const auto all = session_.communicator.all_gather(own_ns_);
    const auto steps = own_ns_.size();
    const auto world_size = static_cast<std::size_t>(session_.communicator.world_size());
    for (std::size_t step = 0; step < steps; ++step) {
      std::size_t slowest = 0;
      for (std::size_t rank = 1; rank < world_size; ++rank) {
        if (all[rank * steps + step] > all[slowest * steps + step]) slowest = rank;
      }
      result_.step_ns.push_back(all[slowest * steps + step]);
      result_.slowest_rank.push_back(static_cast<std::int64_t>(slowest));
    }
    // Start times are rank 0's on every rank: the clocks of two hosts need not agree.
    const auto starts = session_.communicator.all_gather(start_ns_);
    result_.start_ns.assign(starts.begin(), starts.begin() + static_cast<std::ptrdiff_t>(steps));
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
  CaseResult result_;
  std::vector<std::int64_t> own_ns_, start_ns_;
  Clock::time_point first_begin_;
};

void publish(benchmark::State& state, const CaseResult& result) {
  const auto counter = [&](const char* name, std::int64_t value) {
    state.counters[name] = static_cast<double>(value);
  };
  for (const auto& [name, percent] : {std::pair("p10_ns", 10), {"p50_ns", 50}, {"p90_ns", 90}}) {
    counter(name, results::percentile(result.step_ns, percent).value_or(0));
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

void run_case(benchmark::State& state, StepSession& session, const StepCase& step_case) {
  StepFixture fixture(session, step_case);
  const bool checked = fixture.SetUp();
  if (checked) {
    for ([[maybe_unused]] const auto _ : state) state.SetIterationTime(fixture.Step());
  }
  const CaseResult& result = fixture.TearDown();
  if (!checked) state.SkipWithError(result.failure.c_str());
  if (checked) publish(state, result);
  topologies::together(session.communicator, [&] {
    if (session.run_folder != nullptr) write_rows(*session.run_folder, session, result);
  });
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
