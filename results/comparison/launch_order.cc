#include "results/comparison/launch_order.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace stepscope::results {

LaunchOrder launch_order(const std::vector<std::string>& base_starts,
                         const std::vector<std::string>& new_starts) {
  std::vector<std::pair<std::string, bool>> all;
  for (const std::string& start : base_starts) all.emplace_back(start, false);
  for (const std::string& start : new_starts) all.emplace_back(start, true);
  // Of equal times, base comes first: not in turn.
  std::sort(all.begin(), all.end());
  if (all.empty() || all.front().first.empty()) return LaunchOrder::one_side_after_the_other;
  std::size_t stretches = 1;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].second != all[i - 1].second) ++stretches;
  }
  return stretches > 2 && stretches * 3 >= all.size() ? LaunchOrder::in_turn
                                                      : LaunchOrder::one_side_after_the_other;
}

std::vector<double> means_of_neighbours(std::span<const double> values) {
  const std::size_t count = values.size();
  const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  const std::size_t groups = std::min(count, std::max<std::size_t>(3, root));
  std::vector<double> means;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t begin = group * count / groups;
    const std::size_t end = (group + 1) * count / groups;
    double sum = 0;
    for (const double value : values.subspan(begin, end - begin)) sum += value;
    means.push_back(sum / static_cast<double>(end - begin));
  }
  return means;
}

}  // namespace stepscope::results
