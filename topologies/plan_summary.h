#pragma once

/// Purpose: the planned bytes of all ranks of a job at once, for any number of ranks: minimum,
/// maximum and total, in time and memory that depend on the model and not on the world size.
///
/// Usage:
///     const PlanSummary summary(model, plan, options);
///     for (const PlanColumn& column : plan_columns()) show(column.name, summary.extent(column));
///
/// How: ranks that hold a whole chunk of the same parameter differ only in where 256-element blocks
/// fall in it, which repeats after at most 256 ranks. So a unit is a few stretches of ranks with a
/// period each, equal units (same shapes) are one, and a sweep over the ranks at which a stretch
/// begins keeps the sum over all units.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "topologies/planned_bytes.h"

namespace stepscope::topologies {

/// A figure that is shown for every rank.
struct PlanColumn {
  std::string_view name;     ///< in JSON and as the table's heading, e.g. "state_bytes"
  std::string_view meaning;  ///< one line for --help
  std::int64_t (*value)(const PlannedBytes&);
};

/// All of them, in the order they are shown.
const std::vector<PlanColumn>& plan_columns();

/// One column over all ranks.
struct PlanExtent {
  std::int64_t min = 0;
  std::int64_t max = 0;
  std::int64_t total = 0;
  double imbalance = 1;  ///< max / mean; 1 where every rank has the same, nothing included
};

class PlanSummary {
 public:
  /// Works out the stretches of every unit; `plan` was made from `model`, and both must outlive
  /// this.
  PlanSummary(const Model& model, const ShardPlan& plan, const StateOptions& options);

  /// The extents of plan_columns(), in their order. Throws Error where a total does not fit in 64
  /// bits.
  std::vector<PlanExtent> extents() const;

  /// Calls `visit` for every rank in ascending order; what it gets equals planned_bytes().
  void for_each_rank(const std::function<void(std::int64_t, const PlannedBytes&)>& visit) const;

  /// How many different units there are (of equal shapes, and so on).
  std::size_t distinct_units() const noexcept { return distinct_units_; }

 private:
  /// Shards [begin, the next stretch's begin) of `units` equal units: shard s has bytes[s % size].
  struct Stretch {
    std::int64_t begin = 0;
    std::int64_t units = 1;
    std::size_t kind = 0;             ///< of unit
    std::vector<PlannedBytes> bytes;  ///< its size is a power of two, at most 256
  };

  void add_stretches(const Model& model, const ShardPlan& plan, const StateOptions& options,
                     std::size_t unit, std::int64_t count);
  /// Calls `visit(begin, end, sums)` for stretches of shards that cover [0, shards()) in ascending
  /// order: shard s has sums[s % period_].
  void sweep(const std::function<void(std::int64_t, std::int64_t,
                                      const std::vector<PlannedBytes>&)>& visit) const;

  std::int64_t shards_;
  std::int64_t replicas_;
  std::size_t period_ = 1;  ///< the largest of all stretches
  std::size_t distinct_units_ = 0;
  std::vector<Stretch> stretches_;  ///< ascending in `begin`; those of one kind in their order
};

}  // namespace stepscope::topologies
