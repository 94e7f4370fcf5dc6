#pragma once

/// Purpose: what kernel_step measures: one optimizer kernel over one tensor, and the loop that
/// moves the same bytes.
///
/// Usage:
///     KernelTensors tensors(kernel_case);
///     const auto subject = make_subject(kernel_case, tensors, pool);
///     const double ns = subject->timed_steps(10);
///
/// Caveats: a subject is of the CPU and keeps references to the tensors and the pool. Those of
/// other libraries in processes of their own come from kernel_peers.h; what a GPU steps comes from
/// bench/cuda/device_subjects.h.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/huge_buffer.h"
#include "bench/kernel_case.h"
#include "kernels/thread_pool.h"
#include "topologies/device_runtime.h"

namespace stepscope::bench {

/// Where the tensors of one case are; null where the case has no such tensor.
struct TensorAddresses {
  void* param = nullptr;
  void* grad = nullptr;
  void* state1 = nullptr;
  void* state2 = nullptr;
  float* absmax1 = nullptr;
  float* absmax2 = nullptr;
};

/// Of buffers in the order of TensorAddresses, whatever memory they are of.
template <typename Buffers>
TensorAddresses addresses_of(const Buffers& buffers) {
  return {.param = buffers[0]->data(),
          .grad = buffers[1]->data(),
          .state1 = buffers[2]->data(),
          .state2 = buffers[3]->data(),
          .absmax1 = static_cast<float*>(buffers[4]->data()),
          .absmax2 = static_cast<float*>(buffers[5]->data())};
}

/// The tensors of one case. Values are random but the same for every case of a size and dtype.
class KernelTensors {
 public:
  explicit KernelTensors(const KernelCase& kernel_case);

  TensorAddresses addresses() const { return addresses_of(buffers_); }

  /// In the order of TensorAddresses; absent tensors have 0 bytes.
  const std::vector<std::unique_ptr<HugeBuffer>>& buffers() const { return buffers_; }

 private:
  std::vector<std::unique_ptr<HugeBuffer>> buffers_;
};

class KernelSubject {
 public:
  KernelSubject() = default;
  KernelSubject(const KernelSubject&) = delete;
  KernelSubject& operator=(const KernelSubject&) = delete;
  virtual ~KernelSubject() = default;

  /// Does `steps` steps in a row and returns the time of all of them, in ns.
  virtual double timed_steps(std::int64_t steps) = 0;
};

/// A subject of this process: the clock around step().
class LocalSubject : public KernelSubject {
 public:
  double timed_steps(std::int64_t steps) final;

 private:
  virtual void step() = 0;
};

kernels::Algorithm algorithm_of(KernelOptimizer optimizer);

/// bitsandbytes' and PyTorch's defaults.
kernels::Hyperparameters hyperparameters_of(KernelOptimizer optimizer);

/// The whole tensor as a shard; its step is 0.
kernels::ShardTensors shard_of(const KernelCase& kernel_case, const TensorAddresses& tensors);

/// Of the implementations native and torch.
std::unique_ptr<KernelSubject> make_subject(const KernelCase& kernel_case,
                                            const KernelTensors& tensors,
                                            kernels::ThreadPool& pool);

/// A step of PyTorch's fused AdamW: on a GPU, what enqueues it; on the CPU, with as many threads as
/// set_torch_threads() says. kernel_torch.cc alone includes torch.
std::function<void()> make_torch_step(const KernelCase& kernel_case, const TensorAddresses& tensors,
                                      topologies::Device device);
void set_torch_threads(int threads);

/// A loop that reads every tensor and writes back all but the gradient, unchanged: the least that a
/// step of this case must move. The time of its step is the floor for the case's.
std::unique_ptr<KernelSubject> make_traffic_loop(const KernelTensors& tensors,
                                                 kernels::ThreadPool& pool);

}  // namespace stepscope::bench
