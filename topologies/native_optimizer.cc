#include "topologies/native_optimizer.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <cstring>
#include <optional>
#include <vector>

#include "kernels/cpu_step.h"
#include "kernels/thread_pool.h"
#include "topologies/cut_block_exchange.h"
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
    // For whoever records libtorch's operators: the n of every tensor that is stepped.
    at::RecordFunction report(at::RecordScope::FUNCTION);
    if (report.isActive() && !params_.empty()) {
      report.before(step_name(config_.optimizer),
                    c10::ArrayRef<const c10::IValue>(params_.data(), params_.size()));
    }
    kernels::step_cpu(pool_, algorithm(config_.optimizer), config_.hyperparameters, table_);
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
  static void copy_on_host(void* destination, const void* source, std::size_t bytes) {
    std::memcpy(destination, source, bytes);
  }

  static const char* step_name(Optimizer optimizer) {
    switch (optimizer) {
      case Optimizer::AdamW8bit:
        return "stepscope::adamw8bit_step";
      case Optimizer::Lion8bit:
        return "stepscope::lion8bit_step";
      case Optimizer::AdamW:
        return "stepscope::adamw_step";
    }
    return "stepscope::unknown_step";
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
