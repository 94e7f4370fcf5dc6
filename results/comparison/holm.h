#pragma once

/// Purpose: Holm's correction of p-values for the number of benchmarks that are tested together.
///
/// Usage:  const std::vector<double> corrected = holm(p_values);

#include <span>
#include <vector>

namespace stepscope::results {

/// S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
/// Statistics 6(2), 1979: the corrected p-values in the order of `p_values`, at most 1. Calling
/// those at most alpha different calls any equal one different with probability at most alpha.
std::vector<double> holm(std::span<const double> p_values);

}  // namespace stepscope::results
