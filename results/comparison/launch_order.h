#pragma once

/// Purpose: whether two sides of a comparison were launched in turn, or one after the other.
///
/// Usage:  const LaunchOrder order = launch_order(base_starts, new_starts);
///
/// Caveats: a machine has phases that last for many launches. Sides that were launched in turn saw
/// the same phases; of sides that were not, each saw its own, and neighbours in time are no
/// independent witnesses.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stepscope::results {

enum class LaunchOrder : std::uint8_t { in_turn, one_side_after_the_other };

/// From the times at which the runs of each side started, as text that sorts by time, such as
/// "2026-12-01T17:15:00Z". In turn: lined up by time, the side changes at least with every third
/// run. Where a time is missing (empty), or several are equal, nobody knows: the worse order is
/// assumed.
LaunchOrder launch_order(const std::vector<std::string>& base_starts,
                         const std::vector<std::string>& new_starts);

/// The means of neighbouring values (one a run, in order of time): as many groups as the root of
/// their number, but at least three, so that what neighbours share counts once. Up to three values
/// stay as they are.
std::vector<double> means_of_neighbours(std::span<const double> values);

}  // namespace stepscope::results
