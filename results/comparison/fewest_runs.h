#pragma once

/// Purpose: the least number of runs, or pairs, that is enough for what a statement promises.
///
/// Usage:
///     return fewest_runs(1, [&](std::int64_t runs) { return error_of(runs) <= effect; });
///
/// Caveats: `enough` must stay true for every larger number.

#include <cstdint>
#include <optional>

namespace stepscope::results {

/// Who asks for more runs than this is told that no number is known.
inline constexpr std::int64_t kMostRuns = 10'000;

/// The least number above `too_few` for which `enough` is true; nothing above kMostRuns.
template <typename Enough>
std::optional<std::int64_t> fewest_runs(std::int64_t too_few, const Enough& enough) {
  if (!enough(kMostRuns)) return std::nullopt;
  std::int64_t low = too_few;
  std::int64_t high = kMostRuns;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace stepscope::results
