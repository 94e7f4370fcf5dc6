#pragma once

/// Purpose: what kernel_step measures: one optimizer kernel over one tensor, and the loop that
/// moves the same bytes.
///
/// Usage:
///     KernelTensors tensors(kernel_case);
///     const auto subject = make_subject(kernel_case, tensors, pool);
///     const double ns = subject->timed_steps(10);
///
/// Caveats: CPU only. A subject keeps references to the tensors and the pool. Those of other
/// libraries in processes of their own come from kernel_peers.h.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/huge_buffer.h"
#include "bench/kernel_case.h"
#include "kernels/thread_pool.h"

namespace stepscope::bench {

/// The tensors of one case. Values are random but the same for every case of a size and dtype.
class KernelTensors {
 public:
  explicit KernelTensors(const KernelCase& kernel_case);

  void* param() const { return buffers_[0]->data(); }
  void* grad() const { return buffers_[1]->data(); }
  void* state1() const { return buffers_[2]->data(); }
  void* state2() const { return buffers_[3]->data(); }
  float* absmax1() const { return static_cast<float*>(buffers_[4]->data()); }
  float* absmax2() const { return static_cast<float*>(buffers_[5]->data()); }

  /// In the order of the accessors above; absent tensors have 0 bytes.
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

/// Of the implementations native and torch.
std::unique_ptr<KernelSubject> make_subject(const KernelCase& kernel_case,
                                            const KernelTensors& tensors,
                                            kernels::ThreadPool& pool);

/// PyTorch's fused AdamW with as many threads as `threads`; kernel_torch.cc alone includes torch.
std::unique_ptr<KernelSubject> make_torch_subject(const KernelCase& kernel_case,
                                                  const KernelTensors& tensors, int threads);

/// A loop that reads every tensor and writes back all but the gradient, unchanged: the least that a
/// step of this case must move. The time of its step is the floor for the case's.
std::unique_ptr<KernelSubject> make_traffic_loop(const KernelTensors& tensors,
                                                 kernels::ThreadPool& pool);

}  // namespace stepscope::bench
