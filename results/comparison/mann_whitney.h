#pragma once

/// Purpose: the test that Google Benchmark's compare.py applies to repetitions.
///
/// Usage:  const std::optional<double> p = mann_whitney_two_sided(old_times, new_times);
///
/// Caveats: repetitions of one process share its luck. This says whether two files differ, not
/// whether two commits do.

#include <optional>
#include <span>

namespace stepscope::results {

/// The two-sided p-value of the U test of Mann and Whitney; nothing where a side has fewer than two
/// values. Exact where no two values are equal and the smaller side has at most eight, the other at
/// most 200, otherwise by the normal approximation with corrections for ties and continuity. A
/// p-value that is too small for a double is 0.
std::optional<double> mann_whitney_two_sided(std::span<const double> a, std::span<const double> b);

}  // namespace stepscope::results
