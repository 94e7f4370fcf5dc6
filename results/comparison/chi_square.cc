#include "results/comparison/chi_square.h"

#include <math.h>

#include <cmath>

#include "results/comparison/normal.h"

namespace stepscope::results {
namespace {

constexpr std::int64_t kMostExact = 100;  // the series takes as many terms as the value is large

/// The x in [low, high] at which the rising `probability_of` reaches `probability`.
template <typename Distribution>
double inverse(const Distribution& probability_of, double probability, double low, double high) {
  // Halves until the two neighbours are one double apart.
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return high;
    (probability_of(middle) < probability ? low : high) = middle;
  }
}

/// The regularized lower incomplete gamma function by its series; Abramowitz and Stegun 6.5.29.
double lower_gamma(double a, double x) {
  if (x <= 0) return 0;
  double term = 1;
  double sum = 1;
  for (double n = a + 1; term > sum * 1e-16; ++n) {
    term *= x / n;
    sum += term;
  }
  int sign = 0;  // lgamma_r, since lgamma writes a global
  return sum * std::exp(a * std::log(x) - x - ::lgamma_r(a + 1, &sign));
}

}  // namespace

double chi_square_quantile(double probability, std::int64_t freedom) {
  const auto n = static_cast<double>(freedom);
  if (freedom <= kMostExact) {
    const auto below = [&](double x) { return lower_gamma(n / 2, x / 2); };
    double high = n;
    while (below(high) < probability) high *= 2;
    return inverse(below, probability, 0, high);
  }
  const double part = 2 / (9 * n);
  const double root = 1 - part + inverse(normal_below, probability, -38, 38) * std::sqrt(part);
  return n * root * root * root;
}

}  // namespace stepscope::results
