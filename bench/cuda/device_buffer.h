#pragma once

/// Purpose: memory of the current CUDA device, and the tensors of one case in it.
///
/// Usage:
///     const DeviceTensors tensors(kernel_case);
///     launch_traffic(tensors.traffic(), thread_blocks);
///
/// Caveats: freed with the object, which must not outlive the work that uses it.

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/cuda/traffic_kernel.h"
#include "bench/kernel_subject.h"

namespace stepscope::bench {

class DeviceBuffer {
 public:
  /// Zeros; padded to 16 bytes. 0 bytes: data() is null. Throws Error where there is not enough
  /// memory.
  explicit DeviceBuffer(std::int64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() const noexcept { return data_; }
  std::int64_t bytes() const noexcept { return bytes_; }

  /// Words of 16 bytes, the last one padded.
  std::int64_t words() const noexcept { return (bytes_ + 15) / 16; }

  /// Copies bytes() bytes from the host's memory.
  void upload(const void* source);

 private:
  std::int64_t bytes_;
  void* data_ = nullptr;
};

/// The tensors of one case, with the values that its CPU case would have.
class DeviceTensors {
 public:
  explicit DeviceTensors(const KernelCase& kernel_case);

  TensorAddresses addresses() const { return addresses_of(buffers_); }
  TrafficArguments traffic() const;

 private:
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;  // as KernelTensors has them
};

}  // namespace stepscope::bench
