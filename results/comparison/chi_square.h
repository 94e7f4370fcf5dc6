#pragma once

/// Purpose: quantiles of the chi-square distribution: what a variance may be that was estimated.
///
/// Usage:  const double worst = variance * freedom / chi_square_quantile(0.1, freedom);

#include <cstdint>

namespace stepscope::results {

/// The value below which chi squared with `freedom` >= 1 degrees of freedom lies with probability
/// `probability`, between 0 and 1. Exact up to 100 degrees of freedom, beyond them by the cube root
/// approximation of Wilson and Hilferty, to 4 digits.
double chi_square_quantile(double probability, std::int64_t freedom);

}  // namespace stepscope::results
