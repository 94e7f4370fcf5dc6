#pragma once

/// Purpose: what one rank's optimizer holds and its process uses: the figures of a row of
/// results.csv.
///
/// Usage:
///     const RankFigures mine = measure_rank(*optimizer, plan, config, runtime, rank, threads);
///     for (const RankFigures& rank : gather_figures(communicator, mine)) set_figures(row, rank);

#include <cstdint>
#include <optional>
#include <vector>

#include "results/row.h"
#include "topologies/communicator.h"
#include "topologies/device_runtime.h"
#include "topologies/shard_plan.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::bench {

/// Figures of one rank in one case. All in bytes unless named otherwise; gathered as integers, -1
/// for what could not be measured.
struct RankFigures {
  std::int64_t threads = 0;
  std::int64_t local_numel = 0;
  std::int64_t parameters_8bit = 0;
  std::int64_t parameters_fp32 = 0;
  std::int64_t empty_shards = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t moment_bytes = 0;
  std::int64_t state_bytes = 0;
  std::int64_t peak_allocated_bytes = 0;
  std::int64_t peak_reserved_bytes = -1;
  std::int64_t resident_bytes = -1;
  std::int64_t peak_resident_bytes = -1;
  std::int64_t bytes_moved = 0;
};

/// The figures of `rank` now; peaks since they were last reset.
RankFigures measure_rank(const topologies::ShardedOptimizer& optimizer,
                         const topologies::ShardPlan& plan, const topologies::StepConfig& config,
                         const topologies::DeviceRuntime& runtime, std::int64_t rank,
                         std::int64_t threads);

/// The figures of all ranks, by rank. Collective.
std::vector<RankFigures> gather_figures(topologies::Communicator& communicator,
                                        const RankFigures& mine);

/// Sets the columns of results.csv that hold these figures, all but bytes_moved.
void set_figures(results::Row& row, const RankFigures& figures);

/// part / whole; nothing where `whole` is 0.
std::optional<double> ratio(std::int64_t part, std::int64_t whole);

}  // namespace stepscope::bench
