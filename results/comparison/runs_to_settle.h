#pragma once

/// Purpose: how many more runs would settle a verdict on a time that is uncertain.
///
/// Usage:
///     const auto more = runs_to_settle({.change = std::log(1.02), .spread = 0.05, .have = 5});
///
/// Caveats: what is known of the change and of the spread is what the runs so far have shown, which
/// is little where they are few: the true change may lie nearer to the threshold than the one that
/// was seen, and runs vary more. Both are allowed for. Nobody can promise that a change as large as
/// the threshold itself is ever settled.

#include <cstdint>
#include <optional>

namespace stepscope::results {

/// The probability with which as many more runs as stated settle a verdict.
inline constexpr double kSettles = 0.8;

struct UncertainTime {
  double change = 0;             ///< ln(ratio) that was seen
  double spread = 0;             ///< of ln(median) of a run, or of ln(ratio) of a pair
  std::int64_t have = 2;         ///< runs on the side that has fewer, or pairs
  std::int64_t freedom = 2;      ///< degrees of freedom of the spread
  bool paired = false;           ///< the units are pairs
  bool kept = true;              ///< the runs so far count beside the new ones
  std::int64_t benchmarks = 1;   ///< that are tested together
  double threshold = 0.0295588;  ///< ln(1 + threshold)
};

/// Runs a side (pairs where `paired`) to add to those that are there, or, where these are not
/// `kept`, to launch in all: the least number with which the verdict is slower, faster or same with
/// probability kSettles. Nothing above 10,000.
std::optional<std::int64_t> runs_to_settle(const UncertainTime& time);

}  // namespace stepscope::results
