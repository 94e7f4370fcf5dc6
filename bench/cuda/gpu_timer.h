#pragma once

/// Purpose: DeviceTimer of the current CUDA device: events around the work, and a sweep through
/// several times the L2 cache before it.
///
/// Usage:  GpuTimer timer(device_info.l2_cache_bytes);
///
/// Caveats: not yet run on a GPU. The sweep reads only, so that what it leaves in the cache need
/// not be written back in the next step's time.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "bench/cuda/device_buffer.h"
#include "bench/cuda/device_timer.h"

namespace stepscope::bench {

class GpuTimer final : public DeviceTimer {
 public:
  /// Allocates the memory of the sweep. Throws Error for a CUDA error.
  explicit GpuTimer(std::int64_t l2_bytes);
  ~GpuTimer() override;
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;

  void evict_l2() override;
  double time_ns(const std::function<void()>& enqueue) override;

 private:
  DeviceBuffer swept_;
  DeviceBuffer sink_;
  unsigned thread_blocks_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

}  // namespace stepscope::bench
