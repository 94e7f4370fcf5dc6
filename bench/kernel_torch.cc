#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <vector>

#include "bench/kernel_subject.h"

namespace stepscope::bench {
namespace {

at::ScalarType scalar_type(kernels::DType dtype) {
  if (dtype == kernels::DType::fp32) return at::kFloat;
  return dtype == kernels::DType::bf16 ? at::kBFloat16 : at::kHalf;
}

/// at::_fused_adamw_: what torch.optim.AdamW(fused=True) calls.
class TorchSubject final : public LocalSubject {
 public:
  TorchSubject(const KernelCase& c, const KernelTensors& tensors, int threads) {
    at::set_num_threads(threads);
    const auto options = at::TensorOptions().dtype(scalar_type(c.dtype));
    const auto wrap = [&](void* data) {
      return std::vector<at::Tensor>{at::from_blob(data, {c.numel}, options)};
    };
    params_ = wrap(tensors.param());
    grads_ = wrap(tensors.grad());
    exp_avgs_ = wrap(tensors.state1());
    exp_avg_sqs_ = wrap(tensors.state2());
    steps_ = {at::zeros({}, at::kFloat)};
  }

 private:
  void step() override {
    const kernels::Hyperparameters h;
    steps_[0].add_(1);
    at::_fused_adamw_(params_, grads_, exp_avgs_, exp_avg_sqs_, {}, steps_, h.learning_rate,
                      h.beta1, h.beta2, h.weight_decay, h.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  }

  std::vector<at::Tensor> params_, grads_, exp_avgs_, exp_avg_sqs_, steps_;
};

}  // namespace

std::unique_ptr<KernelSubject> make_torch_subject(const KernelCase& kernel_case,
                                                  const KernelTensors& tensors, int threads) {
  return std::make_unique<TorchSubject>(kernel_case, tensors, threads);
}

}  // namespace stepscope::bench
