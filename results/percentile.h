#pragma once

/// Purpose: percentiles of step times, exact in integers.
///
/// Usage:  row.set("p50_ns", percentile(step_ns, 50)).set("percentile_method", kPercentileMethod);
///
/// Caveats: they interpolate. A percentile of 10 samples is a value that need not have been
/// measured; that is why every row of results.csv names the method.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace stepscope::results {

/// The value of the column `percentile_method`.
inline constexpr std::string_view kPercentileMethod = "linear-type7";

/// The `percent`-th percentile of `samples`, in their unit; nothing when there are no samples.
///
/// Type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician
/// 50(4), 1996, which is NumPy's default: with the n samples sorted and h = (n - 1) * percent /
/// 100, x[floor(h)] + (h - floor(h)) * (x[floor(h) + 1] - x[floor(h)]). Computed in integers of 128
/// bits and rounded once, to the nearest, ties to even. `samples` may be in any order and are not
/// changed. Throws Error when `percent` is not in 0..100.
std::optional<std::int64_t> percentile(std::span<const std::int64_t> samples, int percent);

}  // namespace stepscope::results
