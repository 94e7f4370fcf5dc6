#pragma once

/// Purpose: which rank set a case's step times, how often, and by how much.
///
/// Usage:
///     for (const Straggler& one : find_stragglers(step_ns, slowest_rank, middle_rank_ns)) ...
///
/// Caveats: every figure is a duration that one rank took by its own monotonic clock. No two ranks'
/// clocks are compared, so clocks that are apart or drift cannot make a straggler. Of equal ranks
/// each sets about one step in world size; with few steps some rank is always ahead.

#include <cstdint>
#include <span>
#include <vector>

namespace stepscope::results {

/// A rank that set the time of some steps.
struct Straggler {
  std::int64_t rank = 0;
  std::int64_t steps = 0;        ///< whose time it set
  std::int64_t p50_lead_ns = 0;  ///< median, over those steps, of step_ns - middle_rank_ns
  std::int64_t max_lead_ns = 0;  ///< largest of them
};

/// The ranks that set at least one step, the most frequent first, of equals the lower rank. The
/// columns of samples.csv of one case, one value a step each. Throws Error where the columns differ
/// in length or a step is shorter than its middle rank's.
std::vector<Straggler> find_stragglers(std::span<const std::int64_t> step_ns,
                                       std::span<const std::int64_t> slowest_rank,
                                       std::span<const std::int64_t> middle_rank_ns);

}  // namespace stepscope::results
