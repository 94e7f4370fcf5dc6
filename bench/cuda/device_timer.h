#pragma once

/// Purpose: the two things that timing on a GPU needs of it, so that what is built on them can be
/// tested without one.
///
/// Usage:
///     timer.evict_l2();
///     const double ns = timer.time_ns([&] { step.enqueue(nullptr); });
///
/// Caveats: all work is on the legacy default stream, the only one that bitsandbytes' C interface
/// knows.

#include <functional>

namespace stepscope::bench {

class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;

  /// Enqueues work that leaves nothing of what was used before in the L2 cache, and takes the
  /// device longer than enqueueing a step takes the host.
  virtual void evict_l2() = 0;

  /// Device time of what `enqueue` enqueues, in ns; waits for its end. Throws Error where it fails.
  virtual double time_ns(const std::function<void()>& enqueue) = 0;
};

}  // namespace stepscope::bench
