#include "results/comparison/holm.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace stepscope::results {

std::vector<double> holm(std::span<const double> p_values) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> corrected(p_values.size());
  double largest = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const auto still_open = static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, p_values[order[rank]] * still_open));
    corrected[order[rank]] = largest;
  }
  return corrected;
}

}  // namespace stepscope::results
