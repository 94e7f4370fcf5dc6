#pragma once

/// Purpose: the kernels beside the optimizer's: one that moves the bytes of a step and computes
/// nothing, the floor for its time, and one that sweeps through memory to clear the L2 cache.
///
/// Usage:
///     launch_traffic(arguments, thread_blocks);
///     launch_sweep(data, bytes / 16, sink, thread_blocks);
///
/// Caveats: launches are on the legacy default stream and do not wait. All memory is taken as
/// 16-byte words, so buffers must be aligned and padded to those.

#include <cstdint>

namespace stepscope::bench {

/// A tensor that is read and written back, and, unless null, one of the same size that is read
/// beside it.
struct TouchedTensor {
  void* data;
  const void* read;
  std::int64_t words;  ///< of 16 bytes
};

struct TrafficArguments {
  TouchedTensor tensors[5];  ///< param beside grad, state1, state2, absmax1, absmax2
};

/// Threads of a thread block of both kernels.
inline constexpr int kTrafficThreads = 512;

/// Thread blocks of both kernels that fill the current device. Throws Error for a CUDA error.
unsigned traffic_thread_blocks();

/// Changes nothing in memory. Throws Error where the launch is refused.
void launch_traffic(const TrafficArguments& arguments, unsigned thread_blocks);

/// Reads `words` 16-byte words of zeros; `sink` is 4 bytes that are never written.
void launch_sweep(const void* data, std::int64_t words, void* sink, unsigned thread_blocks);

}  // namespace stepscope::bench
