#include "results/percentile.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"

namespace stepscope::results {
namespace {

__extension__ using Int128 = __int128;

}  // namespace

std::optional<std::int64_t> percentile(std::span<const std::int64_t> samples, int percent) {
  if (percent < 0 || percent > 100) {
    throw Error("percentile " + std::to_string(percent) + " was asked for",
                "give a whole number from 0 to 100");
  }
  if (samples.empty()) return std::nullopt;
  std::vector<std::int64_t> sorted(samples.begin(), samples.end());
  // h = rank_times_100 / 100; all of it stays in hundredths until the one rounding at the end.
  const Int128 rank_times_100 = static_cast<Int128>(sorted.size() - 1) * percent;
  const auto below = static_cast<std::size_t>(rank_times_100 / 100);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  // Two order statistics are enough: sorting all of 100 million samples would take the longest.
  const auto split = sorted.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(sorted.begin(), split, sorted.end());
  if (above != below) std::iter_swap(split + 1, std::min_element(split + 1, sorted.end()));
  const Int128 fraction = rank_times_100 % 100;
  const Int128 times_100 = static_cast<Int128>(sorted[below]) * (100 - fraction) +
                           static_cast<Int128>(sorted[above]) * fraction;

  Int128 floor = times_100 / 100;
  if (floor * 100 > times_100) --floor;
  const Int128 remainder = times_100 - floor * 100;
  const bool up = remainder > 50 || (remainder == 50 && floor % 2 != 0);
  return static_cast<std::int64_t>(floor + (up ? 1 : 0));
}

}  // namespace stepscope::results
