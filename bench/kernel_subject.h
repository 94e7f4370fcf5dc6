#pragma once

/// Purpose: what kernel_step measures: one optimizer kernel over one tensor, and the loop that
/// moves the same bytes.
///
/// Usage:
///     KernelTensors tensors(kernel_case);
///     const auto subject = make_subject(kernel_case, tensors, pool);
///     subject->step();
///
/// Caveats: CPU only. A subject keeps references to the tensors and the pool.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/huge_buffer.h"
#include "kernels/shard_tensors.h"
#include "kernels/thread_pool.h"

namespace stepscope::bench {

enum class KernelKind : std::uint8_t {
  native_adamw8bit,
  native_lion8bit,
  native_adamw,  ///< FP32 state
  torch_adamw,   ///< PyTorch's fused AdamW; its state has the parameter's dtype
};

struct KernelCase {
  KernelKind kind = KernelKind::native_adamw8bit;
  kernels::DType dtype = kernels::DType::fp32;
  std::int64_t numel = 0;

  std::string subject() const;    ///< "native" or "torch"
  std::string optimizer() const;  ///< "AdamW8bit", "Lion8bit" or "AdamW"

  /// "KernelStep/<subject>/<optimizer>/<dtype>/<n>"
  std::string benchmark_name() const;
};

std::string dtype_name(kernels::DType dtype);

/// The tensors of one case. Values are random but the same for every case of a size and dtype.
class KernelTensors {
 public:
  explicit KernelTensors(const KernelCase& kernel_case);

  /// Bytes of all tensors of `kernel_case`, without allocating them.
  static std::int64_t planned_bytes(const KernelCase& kernel_case);

  void* param() const { return buffers_[0]->data(); }
  void* grad() const { return buffers_[1]->data(); }
  void* state1() const { return buffers_[2]->data(); }
  void* state2() const { return buffers_[3]->data(); }
  float* absmax1() const { return static_cast<float*>(buffers_[4]->data()); }
  float* absmax2() const { return static_cast<float*>(buffers_[5]->data()); }

  /// In the order of the accessors above; absent tensors have 0 bytes.
  const std::vector<std::unique_ptr<HugeBuffer>>& buffers() const { return buffers_; }

  /// Bytes that a step reads and writes: the gradient once, all others twice.
  std::int64_t moved_bytes() const;

 private:
  std::vector<std::unique_ptr<HugeBuffer>> buffers_;
};

class KernelSubject {
 public:
  KernelSubject() = default;
  KernelSubject(const KernelSubject&) = delete;
  KernelSubject& operator=(const KernelSubject&) = delete;
  virtual ~KernelSubject() = default;
  virtual void step() = 0;
};

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
