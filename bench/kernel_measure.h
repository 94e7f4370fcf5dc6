#pragma once

/// Purpose: interleaved timing of all cases of one size.
///
/// Usage:  const std::vector<KernelResult> results = measure_interleaved(cases, 15, pool, peers);
///
/// Caveats: every round times each case once, and its traffic loop right behind it, so that what
/// disturbs the machine for a while disturbs all alike. Compare medians, as ratios.

#include <cstdint>
#include <vector>

#include "bench/cuda/clock_reading.h"
#include "bench/kernel_peers.h"
#include "bench/kernel_subject.h"

namespace stepscope::bench {

struct KernelResult {
  KernelCase kernel_case;
  std::int64_t moved_bytes = 0;      ///< a step reads and writes
  std::int64_t moment_bytes = 0;     ///< codes and absmaxes, or moments
  std::int64_t steps_a_sample = 0;   ///< timed together
  std::vector<double> step_ns;       ///< one a round
  std::vector<double> traffic_ns;    ///< of the loop that moves the same bytes, one a round
  std::vector<ClockReading> clocks;  ///< on a GPU, after each step; otherwise empty
};

/// Times `rounds` samples a case, each of about a millisecond at least, after a warm-up. Throws
/// Error when the tensors of all cases together do not fit into the memory that is free.
std::vector<KernelResult> measure_interleaved(const std::vector<KernelCase>& cases,
                                              std::int64_t rounds, kernels::ThreadPool& pool,
                                              KernelPeers& peers);

/// The median; 0 samples are not allowed.
double median(std::vector<double> samples);

}  // namespace stepscope::bench
