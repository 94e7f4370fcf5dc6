#pragma once

/// Purpose: the innermost range of a step: "group 0: AdamW8bit, lr 0.001, 148 tensors, n 62220288",
/// around the update of the tensors that share their hyperparameters, and around nothing else.
///
/// Usage:
///     const GroupRanges groups(*optimizer, config);   // as long as steps are to have them
///
/// Caveats: n is what this rank steps, so that a profile shows it. One listener an optimizer.

#include <optional>
#include <string>

#include "topologies/group_listener.h"
#include "topologies/sharded_optimizer.h"
#include "tracer/range.h"

namespace stepscope::bench {

class GroupRanges final : public topologies::GroupListener {
 public:
  /// `optimizer` must outlive this.
  GroupRanges(topologies::ShardedOptimizer& optimizer, const topologies::StepConfig& config);
  ~GroupRanges() override { optimizer_.report_groups_to(nullptr); }
  GroupRanges(const GroupRanges&) = delete;
  GroupRanges& operator=(const GroupRanges&) = delete;

  void begin_group() noexcept override { range_.emplace(name_); }
  void end_group() noexcept override { range_.reset(); }

 private:
  topologies::ShardedOptimizer& optimizer_;
  std::string name_;  ///< made once: the step has no time for it
  std::optional<tracer::Range> range_;
};

}  // namespace stepscope::bench
