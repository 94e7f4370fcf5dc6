#include "results/comparison/mann_whitney.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "results/comparison/normal.h"

namespace stepscope::results {
namespace {

constexpr std::size_t kMostExact = 8;         // of the smaller side
constexpr std::size_t kMostExactOther = 200;  // the time grows with the square

/// The probability of U >= `least` for sides of `m` and `n` values without ties.
double exact_tail(std::size_t m, std::size_t n, std::size_t least) {
  // ways[i][u]: arrangements of i values of one side among those of the other counted so far, with
  // that U. The largest value belongs to one side, which adds all values of the other, or not.
  std::vector<std::vector<double>> ways(m + 1, std::vector<double>(m * n + 1, 0));
  for (std::size_t i = 0; i <= m; ++i) ways[i][0] = 1;
  for (std::size_t j = 1; j <= n; ++j) {
    std::vector<std::vector<double>> next(m + 1, std::vector<double>(m * n + 1, 0));
    next[0][0] = 1;
    for (std::size_t i = 1; i <= m; ++i) {
      for (std::size_t u = 0; u <= i * j; ++u) {
        next[i][u] = ways[i][u] + (u >= j ? next[i - 1][u - j] : 0);
      }
    }
    ways = std::move(next);
  }
  double all = 0;
  double tail = 0;
  for (std::size_t u = 0; u <= m * n; ++u) {
    all += ways[m][u];
    if (u >= least) tail += ways[m][u];
  }
  return tail / all;
}

}  // namespace

std::optional<double> mann_whitney_two_sided(std::span<const double> a, std::span<const double> b) {
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  std::vector<std::pair<double, bool>> all;  // value, whether it is of `a`
  for (const double value : a) all.emplace_back(value, true);
  for (const double value : b) all.emplace_back(value, false);
  std::sort(all.begin(), all.end());
  double rank_sum = 0;  // of `a`
  double ties = 0;      // sum of t^3 - t
  for (std::size_t i = 0; i < all.size();) {
    std::size_t end = i;
    while (end < all.size() && all[end].first == all[i].first) ++end;
    const double rank = static_cast<double>(i + end + 1) / 2;
    for (std::size_t k = i; k < end; ++k) rank_sum += all[k].second ? rank : 0;
    const auto equal = static_cast<double>(end - i);
    ties += equal * equal * equal - equal;
    i = end;
  }
  const auto m = static_cast<double>(a.size());
  const auto n = static_cast<double>(b.size());
  const double u_a = rank_sum - m * (m + 1) / 2;
  const double u = std::max(u_a, m * n - u_a);
  if (ties == 0 && std::min(a.size(), b.size()) <= kMostExact &&
      std::max(a.size(), b.size()) <= kMostExactOther) {
    return std::min(1.0, 2 * exact_tail(a.size(), b.size(), static_cast<std::size_t>(u)));
  }
  const double total = m + n;
  const double variance = m * n / 12 * (total + 1 - ties / (total * (total - 1)));
  if (variance <= 0) return 1.0;
  const double z = (u - m * n / 2 - 0.5) / std::sqrt(variance);
  return std::min(1.0, 2 * normal_below(-z));
}

}  // namespace stepscope::results
