#pragma once

/// Purpose: the table of stragglers that optimizer_step prints after its cases.
///
/// Usage:  print_stragglers(session.completed);
///
/// Caveats: rank 0's only. One line a case: the rank that set most of its steps; all ranks' shares
/// are in results.csv (max_over_rank_share), every step's rank and lead in samples.csv.

#include <vector>

#include "bench/step_session.h"

namespace stepscope::bench {

/// Prints which rank set the time of most steps, in what share of them, beside the share of equal
/// ranks, and by how much it was behind the rank in the middle, in ms. Nothing where there is one
/// rank, or no case was timed.
void print_stragglers(const std::vector<CaseResult>& results);

}  // namespace stepscope::bench
