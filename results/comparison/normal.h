#pragma once

/// Purpose: the normal distribution of mean 0 and deviation 1.
///
/// Usage:  const double p_value = 2 * normal_below(-z);

#include <cmath>

namespace stepscope::results {

/// The probability of a value below `z`. Keeps its digits in the lower tail.
inline double normal_below(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }

}  // namespace stepscope::results
