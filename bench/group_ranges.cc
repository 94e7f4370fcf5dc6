#include "bench/group_ranges.h"

#include <fmt/format.h>

namespace stepscope::bench {

GroupRanges::GroupRanges(topologies::ShardedOptimizer& optimizer,
                         const topologies::StepConfig& config)
    : optimizer_(optimizer) {
  std::int64_t numel = 0;
  for (const topologies::OwnedShard& shard : optimizer.shards()) numel += shard.tensors.numel;
  const std::size_t tensors = optimizer.shards().size();
  name_ = fmt::format(
      "group 0: {}, lr {}, {} tensor{}, n {}", topologies::optimizer_name(config.optimizer),
      config.hyperparameters.learning_rate, tensors, tensors == 1 ? "" : "s", numel);
  optimizer.report_groups_to(this);
}

}  // namespace stepscope::bench
