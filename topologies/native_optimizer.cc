#include "topologies/native_optimizer.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <cstring>
#include <optional>
#include <vector>

#include "kernels/cpu_step.h"
#include "kernels/thread_pool.h"
#include "topologies/border_exchange.h"
#include "topologies/shard_storage.h"

namespace stepscope::topologies {
namespace {

class NativeCpuOptimizer final : public ShardedOptimizer {
 public:
  NativeCpuOptimizer(const Model& model, const ShardPlan& plan, const StepConfig& config,
                     std::int64_t threads, Communicator& communicator)
      : storage_(model, plan, communicator.rank(), config),
        config_(config),
        communicator_(communicator),
        pool_(static_cast<int>(threads)),
        block_params_(storage_.block_params()),
        block_grads_(storage_.block_grads()) {
    for (const OwnedShard& shard : storage_.shards()) table_.push_back(shard.tensors);
    for (const ShardTensorSet& set : storage_.tensor_sets()) params_.emplace_back(set.param);
    if (config.state_policy != StatePolicy::original || !asks_8bit(config.optimizer)) return;
    const auto cut = static_cast<std::int64_t>(storage_.borders().blocks.size());
    // Where no border of any rank cuts a block there is nothing to exchange, and all ranks know it.
    if (max_over_ranks(communicator, cut) == 0) return;
    exchange_.emplace(storage_.borders(), kernels::element_bytes(config.dtype),
                      communicator.world_size());
  }

  void step() override {
    for (std::size_t i = 0; i < table_.size(); ++i) {
      table_[i].step = ++storage_.shards()[i].tensors.step;
    }
    if (exchange_) {
      for (const OwnPart& own : storage_.own_parts()) {
        std::memcpy(own.block_param, own.param, own.bytes);
        std::memcpy(own.block_grad, own.grad, own.bytes);
      }
      exchange_->run(communicator_, block_grads_);
    }
    // For whoever records libtorch's operators: the n of every tensor that is stepped.
    at::RecordFunction report(at::RecordScope::FUNCTION);
    if (report.isActive() && !params_.empty()) {
      report.before(step_name(config_.optimizer),
                    c10::ArrayRef<const c10::IValue>(params_.data(), params_.size()));
    }
    kernels::step_cpu(pool_, algorithm(config_.optimizer), config_.hyperparameters, table_);
    for (const OwnPart& own : storage_.own_parts()) {
      std::memcpy(own.param, own.block_param, own.bytes);
    }
  }

  void restart() override {
    storage_.restart();
    complete_cut_blocks();
  }

  void resume(std::span<const std::int64_t> steps) override {
    storage_.set_steps(steps);
    complete_cut_blocks();
  }

  std::span<const OwnedShard> shards() const override { return storage_.shards(); }
  std::vector<LocalView> local_views() const override { return storage_.local_views(); }
  MeasuredBytes measured_bytes() const override { return storage_.measured_bytes(); }

 private:
  /// From here on every rank of a cut block computes all of it, so its parameters are exchanged
  /// once.
  void complete_cut_blocks() {
    if (!exchange_) return;
    for (const OwnPart& own : storage_.own_parts()) {
      std::memcpy(own.block_param, own.param, own.bytes);
    }
    exchange_->run(communicator_, block_params_);
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
  Communicator& communicator_;
  kernels::ThreadPool pool_;
  std::vector<kernels::ShardTensors> table_;  ///< what the kernels take: contiguous, one a piece
  std::vector<c10::IValue> params_;           ///< of every piece, as reported
  std::vector<std::byte*> block_params_, block_grads_;  ///< copies of cut blocks
  std::optional<BorderExchange> exchange_;              ///< only where some border cuts a block
};

}  // namespace

std::unique_ptr<ShardedOptimizer> make_native_optimizer(const Model& model, const ShardPlan& plan,
                                                        const StepConfig& config,
                                                        std::int64_t threads,
                                                        Communicator& communicator) {
  return std::make_unique<NativeCpuOptimizer>(model, plan, config, threads, communicator);
}

}  // namespace stepscope::topologies
