#pragma once

/// Purpose: many verdicts in few words: for each contract how many hold, how many do not, and the
/// first of those.
///
/// Usage:
///     for (const ContractSummary& line : summarize(judgement.verdicts)) print(line);

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tracer/verdict.h"

namespace stepscope::tracer {

struct ContractSummary {
  Contract contract = Contract::local_n;
  std::int64_t ok = 0;
  std::int64_t broken = 0;
  std::int64_t unverified = 0;
  const Verdict* first_broken = nullptr;      ///< into the list that was summarized
  const Verdict* first_unverified = nullptr;  ///< likewise

  /// broken, if any is; else unverified, if any is or there is none; else ok.
  Status status() const;
};

/// One line a contract that has a verdict, in the order of all_contracts().
std::vector<ContractSummary> summarize(std::span<const Verdict> verdicts);

/// "rank 1, step 3: n = 16384 is ..." and, for each offender, a further line that starts with two
/// blanks. Control characters of names are replaced.
std::vector<std::string> explained(const Verdict& verdict);

}  // namespace stepscope::tracer
