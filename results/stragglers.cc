#include "results/stragglers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "core/error.h"
#include "results/percentile.h"

namespace stepscope::results {

std::vector<Straggler> find_stragglers(std::span<const std::int64_t> step_ns,
                                       std::span<const std::int64_t> slowest_rank,
                                       std::span<const std::int64_t> middle_rank_ns) {
  if (step_ns.size() != slowest_rank.size() || step_ns.size() != middle_rank_ns.size()) {
    throw Error("samples of " + std::to_string(step_ns.size()) + " steps, with slowest ranks of " +
                std::to_string(slowest_rank.size()) + " and middle ranks of " +
                std::to_string(middle_rank_ns.size()));
  }
  std::map<std::int64_t, std::vector<std::int64_t>> leads;
  for (std::size_t step = 0; step < step_ns.size(); ++step) {
    if (middle_rank_ns[step] < 0 || step_ns[step] < middle_rank_ns[step]) {
      throw Error("step " + std::to_string(step) + " took " + std::to_string(step_ns[step]) +
                  " ns on its slowest rank and " + std::to_string(middle_rank_ns[step]) +
                  " ns on the one in the middle");
    }
    leads[slowest_rank[step]].push_back(step_ns[step] - middle_rank_ns[step]);
  }
  std::vector<Straggler> found;
  for (const auto& [rank, lead] : leads) {
    found.push_back({.rank = rank,
                     .steps = static_cast<std::int64_t>(lead.size()),
                     .p50_lead_ns = percentile(lead, 50).value(),
                     .max_lead_ns = *std::ranges::max_element(lead)});
  }
  std::ranges::stable_sort(found, std::ranges::greater{}, &Straggler::steps);
  return found;
}

}  // namespace stepscope::results
