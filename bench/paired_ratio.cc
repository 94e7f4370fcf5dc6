#include "bench/paired_ratio.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"

namespace stepscope::bench {

PairedRatio paired_ratio(std::span<const std::int64_t> above, std::span<const std::int64_t> below) {
  if (above.empty() || above.size() != below.size()) {
    throw Error(std::to_string(above.size()) + " and " + std::to_string(below.size()) +
                " times are no pairs");
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < above.size(); ++i) {
    // A clock too coarse for a step must not divide by zero.
    ratios.push_back(static_cast<double>(above[i]) /
                     static_cast<double>(std::max<std::int64_t>(1, below[i])));
  }
  std::sort(ratios.begin(), ratios.end());
  const std::size_t n = ratios.size();
  // With a probability of 2.5 % fewer than this many of n lie below the median.
  const auto count = static_cast<double>(n);
  const double rank = std::floor((count - 1.96 * std::sqrt(count)) / 2);
  const std::size_t skipped = n < 10 ? 0 : static_cast<std::size_t>(rank) - 1;
  return {.median = n % 2 == 1 ? ratios[n / 2] : (ratios[n / 2 - 1] + ratios[n / 2]) / 2,
          .low = ratios[skipped],
          .high = ratios[n - 1 - skipped]};
}

}  // namespace stepscope::bench
