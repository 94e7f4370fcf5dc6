#include "topologies/native_optimizer.h"

#include <ATen/core/ivalue.h>

#include <cstring>
#include <optional>
#include <vector>

#include "kernels/cpu_step.h"
#include "kernels/thread_pool.h"
#include "topologies/cut_block_exchange.h"
#include "topologies/recorded_update.h"
#include "topologies/shard_storage.h"

namespace stepscope::topologies {
namespace {

class NativeCpuOptimizer final : public ShardedOptimizer {
 public:
  NativeCpuOptimizer(const Model& model, const ShardPlan& plan, const StepConfig& config,
                     std::int64_t threads, Communicator& communicator)
      : storage_(model, plan, communicator.rank(), config),
        config_(config),
        pool_(static_cast<int>(threads)) {
    for (const OwnedShard& shard : storage_.shards()) table_.push_back(shard.tensors);
    for (const ShardTensorSet& set : storage_.tensor_sets()) params_.emplace_back(set.param);
    cut_blocks_ = CutBlockExchange::make(storage_, config, communicator, copy_on_host);
  }

  void step() override {
    for (std::size_t i = 0; i < table_.size(); ++i) {
      table_[i].step = ++storage_.shards()[i].tensors.step;
    }
    if (cut_blocks_) cut_blocks_->before_step();
    update();
    if (cut_blocks_) cut_blocks_->after_step();
  }

  void restart() override {
    storage_.restart();
    if (cut_blocks_) cut_blocks_->complete();
  }

  void resume(std::span<const std::int64_t> steps) override {
    storage_.set_steps(steps);
    if (cut_blocks_) cut_blocks_->complete();
  }

  std::span<const OwnedShard> shards() const override { return storage_.shards(); }
  std::vector<LocalView> local_views() const override { return storage_.local_views(); }
  MeasuredBytes measured_bytes() const override { return storage_.measured_bytes(); }

 private:
  void update() {
    const GroupScope group(listener());
    const RecordedUpdate report(config_.optimizer, params_);
    kernels::step_cpu(pool_, algorithm(config_.optimizer), config_.hyperparameters, table_);
  }

  static void copy_on_host(void* destination, const void* source, std::size_t bytes) {
    std::memcpy(destination, source, bytes);
  }

  ShardStorage storage_;
  StepConfig config_;
  kernels::ThreadPool pool_;
  std::vector<kernels::ShardTensors> table_;    ///< what the kernels take: contiguous, one a piece
  std::vector<c10::IValue> params_;             ///< of every piece, as reported
  std::optional<CutBlockExchange> cut_blocks_;  ///< only where some border cuts a block
};

}  // namespace

std::unique_ptr<ShardedOptimizer> make_native_optimizer(const Model& model, const ShardPlan& plan,
                                                        const StepConfig& config,
                                                        std::int64_t threads,
                                                        Communicator& communicator) {
  return std::make_unique<NativeCpuOptimizer>(model, plan, config, threads, communicator);
}

}  // namespace stepscope::topologies
