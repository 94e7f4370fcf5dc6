#pragma once

/// Purpose: what a shard plan promises of a step, as contracts need it: for each rank the sizes of
/// the tensors that its optimizer steps, and the collectives that are declared.
///
/// Usage:
///     const ExpectedPlan plan = read_plan_file("plan.json");   // plan_state --plan-out plan.json
///     if (const ExpectedRank* rank = plan.rank(3)) use(rank->tensors);
///
/// Caveats: a plan may hold some of the ranks only, since a job may have a million.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tracer/event.h"

namespace stepscope::tracer {

/// One tensor as the optimizer is to be handed it.
struct ExpectedTensor {
  std::string name;        ///< of the parameter, or of the first one of a flat unit
  std::int64_t n = 0;      ///< elements; 0: an empty shard, which must launch nothing
  std::int64_t whole = 0;  ///< elements of the whole parameter or unit
};

struct ExpectedRank {
  std::vector<ExpectedTensor> tensors;
};

struct ExpectedPlan {
  std::int64_t world_size = 1;
  /// What a step is allowed, and has, to issue; nothing but for state policy `original`.
  std::vector<CollectiveKind> collectives = {};
  std::map<std::int64_t, ExpectedRank> ranks = {};

  const ExpectedRank* rank(std::int64_t rank) const {
    const auto found = ranks.find(rank);
    return found == ranks.end() ? nullptr : &found->second;
  }
};

/// Writes `plan` as one JSON object. Throws Error where it cannot.
void write_plan_file(const ExpectedPlan& plan, const std::filesystem::path& path);

/// Reads what write_plan_file wrote. Throws Error naming the file and what is wrong with it.
ExpectedPlan read_plan_file(const std::filesystem::path& path);

/// The inverse of collective_kind_name ("all-to-all"). Throws Error listing the names otherwise.
CollectiveKind parse_collective(std::string_view name);

}  // namespace stepscope::tracer
