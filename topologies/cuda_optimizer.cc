#include "topologies/cuda_optimizer.h"

#include <memory>
#include <vector>

#include "core/error.h"
#include "kernels/cuda/cuda_step.h"
#include "topologies/shard_storage.h"

namespace stepscope::topologies {
namespace {

class NativeCudaOptimizer final : public ShardedOptimizer {
 public:
  NativeCudaOptimizer(const Model& model, const ShardPlan& plan, std::int64_t rank,
                      const StepConfig& config)
      : storage_(model, plan, rank, config), config_(config), rank_(rank) {
    prepare();
  }

  void step() override {
    for (OwnedShard& shard : storage_.shards()) ++shard.tensors.step;
    // libtorch works on the legacy default stream, and so do the kernels: their order needs no
    // events.
    step_->enqueue(/*stream=*/nullptr);
  }

  void restart() override {
    storage_.restart();
    prepare();
  }

  void resume(std::span<const std::int64_t> steps) override {
    storage_.set_steps(steps);
    prepare();
  }

  std::span<const OwnedShard> shards() const override { return storage_.shards(); }
  std::vector<LocalView> local_views() const override { return storage_.local_views(); }
  MeasuredBytes measured_bytes() const override { return storage_.measured_bytes(); }

 private:
  /// Uploads the table of tensors; the kernel counts the steps itself from then on.
  void prepare() {
    std::vector<kernels::ShardTensors> table;
    for (const OwnedShard& shard : storage_.shards()) {
      table.push_back(shard.tensors);
      table.back().step = shard.tensors.step + 1;
    }
    step_ = std::make_unique<kernels::cuda::CudaStep>(algorithm(config_.optimizer),
                                                      config_.hyperparameters, table, rank_);
  }

  ShardStorage storage_;
  StepConfig config_;
  std::int64_t rank_;
  std::unique_ptr<kernels::cuda::CudaStep> step_;
};

}  // namespace

std::unique_ptr<ShardedOptimizer> make_cuda_optimizer(const Model& model, const ShardPlan& plan,
                                                      std::int64_t rank, const StepConfig& config) {
  if (config.state_policy == StatePolicy::original) {
    throw Error("the state policy original is not built for CUDA",
                "use --state-policy global, or --device cpu", {.rank = rank});
  }
  return std::make_unique<NativeCudaOptimizer>(model, plan, rank, config);
}

}  // namespace stepscope::topologies
