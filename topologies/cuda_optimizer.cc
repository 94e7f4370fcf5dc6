#include "topologies/cuda_optimizer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_step.h"
#include "topologies/cut_block_exchange.h"
#include "topologies/recorded_update.h"
#include "topologies/shard_storage.h"
#include "topologies/torch_types.h"

namespace stepscope::topologies {
namespace {

class NativeCudaOptimizer final : public ShardedOptimizer {
 public:
  NativeCudaOptimizer(const Model& model, const ShardPlan& plan, const StepConfig& config,
                      Communicator& communicator)
      : storage_(model, plan, communicator.rank(), config),
        config_(config),
        rank_(communicator.rank()),
        cut_blocks_(CutBlockExchange::make(storage_, config, communicator, copy_on_device)) {
    prepare();
  }

  void step() override {
    for (OwnedShard& shard : storage_.shards()) ++shard.tensors.step;
    if (cut_blocks_) cut_blocks_->before_step();
    update();
    if (cut_blocks_) cut_blocks_->after_step();
  }

  void restart() override {
    storage_.restart();
    if (cut_blocks_) cut_blocks_->complete();
    prepare();
  }

  void resume(std::span<const std::int64_t> steps) override {
    storage_.set_steps(steps);
    if (cut_blocks_) cut_blocks_->complete();
    prepare();
  }

  std::span<const OwnedShard> shards() const override { return storage_.shards(); }
  std::vector<LocalView> local_views() const override { return storage_.local_views(); }
  MeasuredBytes measured_bytes() const override { return storage_.measured_bytes(); }

 private:
  void update() {
    const GroupScope group(listener());
    const RecordedUpdate report(config_.optimizer, reported_);
    // libtorch works on the legacy default stream, and so do the kernels: their order needs no
    // events.
    step_->enqueue(/*stream=*/nullptr);
  }

  /// On the stream of the kernels and of NCCL.
  static void copy_on_device(void* destination, const void* source, std::size_t bytes) {
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice,
                                         /*stream=*/nullptr),
                         -1);
  }

  /// Uploads the table of tensors; the kernel counts the steps itself from then on.
  void prepare() {
    std::vector<kernels::ShardTensors> table;
    reported_.clear();
    for (const OwnedShard& shard : storage_.shards()) {
      table.push_back(shard.tensors);
      table.back().step = shard.tensors.step + 1;
      // Of what the table is made of, and not of what the storage holds: the n that is stepped.
      reported_.emplace_back(
          at::from_blob(shard.tensors.param, {shard.tensors.numel},
                        at::TensorOptions(scalar_type(shard.tensors.dtype)).device(at::kCUDA)));
    }
    step_ = std::make_unique<kernels::cuda::CudaStep>(algorithm(config_.optimizer),
                                                      config_.hyperparameters, table, rank_);
  }

  ShardStorage storage_;
  StepConfig config_;
  std::int64_t rank_;
  std::optional<CutBlockExchange> cut_blocks_;  ///< only where some border cuts a block
  std::unique_ptr<kernels::cuda::CudaStep> step_;
  std::vector<c10::IValue> reported_;  ///< every tensor of the table
};

}  // namespace

std::unique_ptr<ShardedOptimizer> make_cuda_optimizer(const Model& model, const ShardPlan& plan,
                                                      const StepConfig& config,
                                                      Communicator& communicator) {
  return std::make_unique<NativeCudaOptimizer>(model, plan, config, communicator);
}

}  // namespace stepscope::topologies
