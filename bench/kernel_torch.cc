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
class TorchStep {
 public:
  TorchStep(const KernelCase& c, const TensorAddresses& tensors, topologies::Device device) {
    const auto place = device == topologies::Device::cuda ? at::kCUDA : at::kCPU;
    const auto options = at::TensorOptions().dtype(scalar_type(c.dtype)).device(place);
    const auto wrap = [&](void* data) {
      return std::vector<at::Tensor>{at::from_blob(data, {c.numel}, options)};
    };
    params_ = wrap(tensors.param);
    grads_ = wrap(tensors.grad);
    exp_avgs_ = wrap(tensors.state1);
    exp_avg_sqs_ = wrap(tensors.state2);
    steps_ = {at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(place))};
  }

  void operator()() {
    const kernels::Hyperparameters h;
    steps_[0].add_(1);
    at::_fused_adamw_(params_, grads_, exp_avgs_, exp_avg_sqs_, {}, steps_, h.learning_rate,
                      h.beta1, h.beta2, h.weight_decay, h.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  }

 private:
  std::vector<at::Tensor> params_, grads_, exp_avgs_, exp_avg_sqs_, steps_;
};

}  // namespace

std::function<void()> make_torch_step(const KernelCase& kernel_case, const TensorAddresses& tensors,
                                      topologies::Device device) {
  return TorchStep(kernel_case, tensors, device);
}

void set_torch_threads(int threads) { at::set_num_threads(threads); }

}  // namespace stepscope::bench
