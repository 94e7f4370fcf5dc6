#pragma once

/// Purpose: how the times of two things compare that took turns: the median of the ratios of pairs,
/// with an interval that assumes nothing about how times are distributed.
///
/// Usage:  const PairedRatio ratio = paired_ratio(new_ns, old_ns);   // below 1: new is faster
///
/// Caveats: the interval holds for independent pairs. Slow phases of a machine make neighbours
/// alike, and the interval too narrow.

#include <cstdint>
#include <span>

namespace stepscope::bench {

struct PairedRatio {
  double median = 0;
  double low = 0, high = 0;  ///< 95 % interval of the median, from order statistics
};

/// Of `above[i] / below[i]`. With fewer than 10 pairs the interval is the whole range. Throws Error
/// unless there are as many of both, at least one.
PairedRatio paired_ratio(std::span<const std::int64_t> above, std::span<const std::int64_t> below);

}  // namespace stepscope::bench
