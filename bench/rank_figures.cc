#include "bench/rank_figures.h"

#include <cstddef>
#include <iterator>
#include <optional>
#include <set>

#include "bench/resident_memory.h"

namespace stepscope::bench {
namespace {

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

std::optional<std::int64_t> measured(std::int64_t figure) {
  if (figure < 0) return std::nullopt;
  return figure;
}

/// A tensor that is stepped in several pieces (state policy original) counts once.
void count_formats(const topologies::ShardedOptimizer& optimizer, RankFigures& figures) {
  std::set<std::size_t> fp32;
  std::set<std::size_t> blockwise;
  for (const auto& shard : optimizer.shards()) {
    // Nothing but padding: the piece belongs to no parameter.
    if (shard.ranges.empty()) continue;
    const bool is_fp32 = shard.tensors.format == kernels::StateFormat::fp32;
    (is_fp32 ? fp32 : blockwise).insert(shard.ranges.front().parameter);
  }
  figures.parameters_fp32 = static_cast<std::int64_t>(fp32.size());
  figures.parameters_8bit = static_cast<std::int64_t>(blockwise.size());
}

}  // namespace

RankFigures measure_rank(const topologies::ShardedOptimizer& optimizer,
                         const topologies::ShardPlan& plan, const topologies::StepConfig& config,
                         const topologies::DeviceRuntime& runtime, std::int64_t rank,
                         std::int64_t threads) {
  const auto bytes = optimizer.measured_bytes();
  RankFigures figures;
  figures.threads = threads;
  figures.local_numel = plan.local_numel(rank);
  for (const auto& local : plan.local_tensors(rank)) {
    if (local.ranges.empty()) ++figures.empty_shards;
  }
  if (topologies::asks_8bit(config.optimizer)) count_formats(optimizer, figures);
  figures.parameter_bytes = bytes.parameter;
  figures.gradient_bytes = bytes.gradient;
  figures.moment_bytes = bytes.moment;
  figures.state_bytes = bytes.state();
  const auto peak = runtime.peak_memory();
  figures.peak_allocated_bytes = peak.allocated;
  figures.peak_reserved_bytes = peak.reserved.value_or(-1);
  figures.resident_bytes = resident_bytes().value_or(-1);
  figures.peak_resident_bytes = peak_resident_bytes().value_or(-1);
  figures.bytes_moved = optimizer.bytes_moved();
  return figures;
}

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

void set_figures(results::Row& row, const RankFigures& figures) {
  row.set("threads", figures.threads)
      .set("local_numel", figures.local_numel)
      .set("parameters_8bit", figures.parameters_8bit)
      .set("parameters_fp32", figures.parameters_fp32)
      .set("empty_shards", figures.empty_shards)
      .set("parameter_bytes", figures.parameter_bytes)
      .set("gradient_bytes", figures.gradient_bytes)
      .set("moment_bytes", figures.moment_bytes)
      .set("state_bytes", figures.state_bytes)
      .set("bytes_per_parameter", ratio(figures.moment_bytes, figures.local_numel))
      .set("peak_allocated_bytes", measured(figures.peak_allocated_bytes))
      .set("peak_reserved_bytes", measured(figures.peak_reserved_bytes))
      .set("resident_bytes", measured(figures.resident_bytes))
      .set("peak_resident_bytes", measured(figures.peak_resident_bytes));
}

std::optional<double> ratio(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace stepscope::bench
