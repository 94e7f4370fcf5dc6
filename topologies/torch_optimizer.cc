#include "topologies/torch_optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "topologies/shard_storage.h"

namespace stepscope::topologies {
namespace {

/// libtorch's fused kernel wants parameter, gradient and moments in one type. FP32 moments of a
/// bf16 or fp16 parameter are therefore reached through FP32 scratch memory: widen, step, narrow,
/// one parameter at a time. The scratch is the size of the largest shard and is not state; its cost
/// is part of the step.
class TorchOptimizer final : public ShardedOptimizer {
 public:
  TorchOptimizer(const Model& model, const ShardPlan& plan, std::int64_t rank,
                 const StepConfig& config)
      : storage_(model, plan, rank, config), config_(config) {
    std::int64_t largest = 0;
    for (ShardTensorSet& set : storage_.tensor_sets()) {
      params_.push_back(set.param);
      grads_.push_back(set.grad);
      moments1_.push_back(set.state1);
      moments2_.push_back(set.state2);
      steps_.push_back(at::zeros({}, set.state1.options()));
      largest = std::max(largest, set.param.numel());
    }
    if (config.dtype != kernels::DType::fp32 && largest > 0) {
      const auto options = moments1_.front().options();
      scratch_param_ = at::empty({largest}, options);
      scratch_grad_ = at::empty({largest}, options);
    }
  }

  void step() override {
    for (OwnedShard& shard : storage_.shards()) ++shard.tensors.step;
    if (params_.empty()) return;
    const GroupScope group(listener());
    at::_foreach_add_(steps_, 1);
    if (!scratch_param_.defined()) {
      fused(params_, grads_, moments1_, moments2_, steps_);
      return;
    }
    for (std::size_t i = 0; i < params_.size(); ++i) {
      const auto numel = params_[i].numel();
      auto param = scratch_param_.narrow(0, 0, numel);
      auto grad = scratch_grad_.narrow(0, 0, numel);
      param.copy_(params_[i]);
      grad.copy_(grads_[i]);
      fused(param, grad, moments1_[i], moments2_[i], steps_[i]);
      params_[i].copy_(param);
    }
  }

  void restart() override {
    storage_.restart();
    for (at::Tensor& step : steps_) step.zero_();
  }

  void resume(std::span<const std::int64_t> steps) override {
    storage_.set_steps(steps);
    for (std::size_t i = 0; i < steps.size(); ++i) steps_[i].fill_(steps[i]);
  }

  std::span<const OwnedShard> shards() const override { return storage_.shards(); }
  std::vector<LocalView> local_views() const override { return storage_.local_views(); }

  MeasuredBytes measured_bytes() const override {
    MeasuredBytes bytes = storage_.measured_bytes();
    for (const at::Tensor& step : steps_) {
      bytes.step_count += static_cast<std::int64_t>(step.storage().nbytes());
    }
    return bytes;
  }

 private:
  void fused(at::TensorList params, at::TensorList grads, at::TensorList moments1,
             at::TensorList moments2, at::TensorList steps) const {
    const kernels::Hyperparameters& h = config_.hyperparameters;
    at::_fused_adamw_(params, grads, moments1, moments2, /*max_exp_avg_sqs=*/{}, steps,
                      h.learning_rate, h.beta1, h.beta2, h.weight_decay, h.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false);
  }

  ShardStorage storage_;
  StepConfig config_;
  std::vector<at::Tensor> params_, grads_, moments1_, moments2_, steps_;
  at::Tensor scratch_param_, scratch_grad_;  ///< float32; undefined for fp32 parameters
};

}  // namespace

std::unique_ptr<ShardedOptimizer> make_torch_optimizer(const Model& model, const ShardPlan& plan,
                                                       std::int64_t rank, const StepConfig& config,
                                                       std::int64_t threads) {
  if (config.optimizer != Optimizer::AdamW) {
    throw Error("libtorch has no " + std::string(optimizer_name(config.optimizer)),
                "measure it with subject native");
  }
  at::set_num_threads(static_cast<int>(threads));
  return std::make_unique<TorchOptimizer>(model, plan, rank, config);
}

}  // namespace stepscope::topologies
