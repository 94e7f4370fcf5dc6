#pragma once

/// Purpose: the ratio of two commits' step times, with the run, or the pair of runs, as the unit of
/// replication: steps of one run share its luck, so a thousand of them count as one.
///
/// Usage:
///     const TimeRatio ratio = ratio_of_runs(base_p50_ns, new_p50_ns);
///     if (ratio.p_value && *ratio.p_value <= kAlpha) ...
///
/// Caveats: Student's t on logarithms of run medians: unequal variances are allowed for (Welch).
/// What neighbouring launches share is allowed for where the sides were not launched in turn, at a
/// price: changes are found later.

#include <cstdint>
#include <optional>
#include <span>

#include "results/comparison/launch_order.h"

namespace stepscope::results {

/// The probability with which equal benchmarks may be called different, all of them together.
/// docs/comparing.md has what came of it on real launches.
inline constexpr double kAlpha = 0.01;

/// All are of new / base: above 1 is slower.
struct TimeRatio {
  double ratio = 1;               ///< of the geometric means over the runs
  std::optional<double> low;      ///< ends of the interval of confidence 1 - kAlpha;
  std::optional<double> high;     ///< nothing with fewer than two runs a side, or two pairs
  std::optional<double> p_value;  ///< two-sided, of "the ratio is 1"; nothing likewise
  std::optional<double> spread;   ///< standard deviation of ln(median) of a run, or of
                                  ///< ln(ratio) of a pair
};

/// From the medians of runs, in order of time on each side; positive, at least one a side. Where
/// the sides were not launched in turn, means of neighbours are the unit (launch_order.h).
TimeRatio ratio_of_runs(std::span<const double> base_ns, std::span<const double> new_ns,
                        LaunchOrder order);

/// From pairs that took turns: base_ns[i] and new_ns[i] are of pair i.
TimeRatio ratio_of_pairs(std::span<const double> base_ns, std::span<const double> new_ns);

/// The spread that a population has at the most, with confidence 90 %, which showed `spread` with
/// `freedom` degrees of freedom, at least 1.
double cautious_spread(double spread, std::int64_t freedom);

/// Runs a side (pairs where `paired`) with which a change by the factor exp(`effect`), effect > 0,
/// is found with a probability of 90 % among `benchmarks` tested together; nothing above 10,000.
/// Where the spread is an estimate, that takes a cautious one.
std::optional<std::int64_t> runs_needed(double spread, double effect, std::int64_t benchmarks,
                                        bool paired);

}  // namespace stepscope::results
