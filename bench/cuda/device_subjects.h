#pragma once

/// Purpose: one step of each implementation on the GPU, as something that enqueues it.
///
/// Usage:
///     DeviceSubjects subjects(library);
///     const std::function<void()> step = subjects.make_step(kernel_case, tensors.addresses());
///
/// Caveats: steps run on the legacy default stream. `native` is one launch of the project's CUDA
/// back end, `torch` is at::_fused_adamw_ and the launch that raises its step count, and
/// `bitsandbytes` is one call of the wheel's C interface, without the Python code around it and the
/// device synchronization that this makes for each parameter.

#include <functional>
#include <memory>
#include <optional>

#include "bench/cuda/device_buffer.h"
#include "bench/kernel_case.h"
#include "kernels/bitsandbytes_abi.h"

namespace stepscope::bench {

class DeviceSubjects {
 public:
  /// Without a library there is no subject bitsandbytes.
  explicit DeviceSubjects(std::optional<kernels::BitsandbytesCuda> library);

  /// The tensors and this object must outlive what is returned. Throws Error for a CUDA error.
  std::function<void()> make_step(const KernelCase& kernel_case, const TensorAddresses& tensors);

 private:
  std::function<void()> make_bitsandbytes_step(const KernelCase& kernel_case,
                                               const TensorAddresses& tensors);

  std::optional<kernels::BitsandbytesCuda> library_;
  DeviceBuffer signed_codes_;
  DeviceBuffer unsigned_codes_;
};

}  // namespace stepscope::bench
