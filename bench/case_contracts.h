#pragma once

/// Purpose: what the contracts say to the recorded steps of one case, rank by rank.
///
/// Usage: made by step_trace.h; written and shown by contract_report.h.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stepscope::bench {

/// What the recorded steps of one rank show.
struct RankContracts {
  std::string status = {};               ///< the worst: "ok", "broken" or "unverified"
  std::string trace = {};                ///< file within the run folder, or why there is none
  nlohmann::ordered_json verdicts = {};  ///< a list, as verdict_json.h writes them
  std::string unrecorded = {};           ///< why nothing was recorded; empty where it was
};

struct CaseContracts {
  std::string benchmark;
  std::int64_t repetition = 0;            ///< from 0
  std::vector<RankContracts> ranks = {};  ///< by rank; none where nothing was recorded

  /// For the column `contract`.
  std::string status(std::size_t rank) const {
    return ranks.empty() ? "unverified" : ranks.at(rank).status;
  }
};

}  // namespace stepscope::bench
