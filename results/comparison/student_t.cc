#include "results/comparison/student_t.h"

#include <math.h>

#include <cmath>

namespace stepscope::results {
namespace {

/// log of the beta function; lgamma_r since lgamma writes a global.
double log_beta(double a, double b) {
  int sign = 0;
  return ::lgamma_r(a, &sign) + ::lgamma_r(b, &sign) - ::lgamma_r(a + b, &sign);
}

/// The continued fraction of the incomplete beta function by Lentz's method; see Abramowitz and
/// Stegun 26.5.8. Converges within some dozen rounds for x below (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kRounds = 500;
  const auto away_from_zero = [](double value) { return std::fabs(value) < kTiny ? kTiny : value; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double fraction = d;
  for (int i = 1; i <= kRounds; ++i) {
    const double m = i;
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    fraction *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    fraction *= c * d;
    if (std::fabs(c * d - 1) < 1e-15) break;
  }
  return fraction;
}

/// The regularized incomplete beta function.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(a * std::log(x) + b * std::log1p(-x) - log_beta(a, b));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double student_t_two_sided(double t, double freedom) {
  if (std::isinf(t)) return 0;
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double student_t_critical(double two_sided, double freedom) {
  double low = 0;
  double high = 1;
  while (student_t_two_sided(high, freedom) > two_sided) high *= 2;
  // Halves until the two neighbours are one double apart.
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return high;
    (student_t_two_sided(middle, freedom) > two_sided ? low : high) = middle;
  }
}

}  // namespace stepscope::results
