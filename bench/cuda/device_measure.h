#pragma once

/// Purpose: interleaved timing of all cases of one size on a GPU, each sample with a cold L2 cache
/// and the clocks beside it.
///
/// Usage:
///     const auto results = measure_on_device(cases, 15, timer, [&] { return gpu.read(); });
///
/// Caveats: as on the CPU, every round times each case once and its traffic loop right behind it;
/// compare medians, as ratios. A sample is one step. Clocks are read after the step, before
/// anything else is enqueued.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/cuda/clock_reading.h"
#include "bench/cuda/device_timer.h"
#include "bench/kernel_measure.h"

namespace stepscope::bench {

struct DeviceCase {
  KernelCase kernel_case;
  std::function<void()> step;     ///< enqueues one step
  std::function<void()> traffic;  ///< enqueues the loop that moves the same bytes
};

/// Times `rounds` samples a case, after a warm-up. Throws Error naming the case that failed.
std::vector<KernelResult> measure_on_device(std::span<const DeviceCase> cases, std::int64_t rounds,
                                            DeviceTimer& timer,
                                            const std::function<ClockReading()>& read_clocks);

}  // namespace stepscope::bench
