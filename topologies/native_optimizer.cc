#include "topologies/native_optimizer.h"

#include <vector>

#include "kernels/cpu_step.h"
#include "kernels/thread_pool.h"
#include "topologies/shard_storage.h"

namespace stepscope::topologies {
namespace {

class NativeCpuOptimizer final : public ShardedOptimizer {
 public:
  NativeCpuOptimizer(const Model& model, const ShardPlan& plan, std::int64_t rank,
                     const StepConfig& config, std::int64_t threads)
      : storage_(model, plan, rank, config), config_(config), pool_(static_cast<int>(threads)) {
    for (const OwnedShard& shard : storage_.shards()) table_.push_back(shard.tensors);
  }

  void step() override {
    for (std::size_t i = 0; i < table_.size(); ++i) {
      table_[i].step = ++storage_.shards()[i].tensors.step;
    }
    kernels::step_cpu(pool_, algorithm(config_.optimizer), config_.hyperparameters, table_);
  }

  void restart() override { storage_.restart(); }
  std::span<const OwnedShard> shards() const override { return storage_.shards(); }
  MeasuredBytes measured_bytes() const override { return storage_.measured_bytes(); }

 private:
  ShardStorage storage_;
  StepConfig config_;
  kernels::ThreadPool pool_;
  std::vector<kernels::ShardTensors> table_;  ///< what the kernels take: contiguous, one a shard
};

}  // namespace

std::unique_ptr<ShardedOptimizer> make_native_optimizer(const Model& model, const ShardPlan& plan,
                                                        std::int64_t rank, const StepConfig& config,
                                                        std::int64_t threads) {
  return std::make_unique<NativeCpuOptimizer>(model, plan, rank, config, threads);
}

}  // namespace stepscope::topologies
