#pragma once

/// Purpose: the contracts of all cases of a run: contracts.json of the run folder, and the table
/// that a run ends with.
///
/// Usage:
///     write_contracts(folder / "contracts.json", cases);
///     print_contracts(cases);

#include <filesystem>
#include <string>
#include <vector>

#include "bench/case_contracts.h"

namespace stepscope::bench {

/// {"schema_version", "cases": [{"benchmark", "repetition", "traces": by rank, "verdicts"}]}, with
/// the verdicts of verdict_json.h. Throws Error where it cannot be written.
void write_contracts(const std::filesystem::path& path, const std::vector<CaseContracts>& cases);

/// A line a contract, over all cases, ranks and steps, and the first reason where it does not hold.
void print_contracts(const std::vector<CaseContracts>& cases);

/// Why steps that should have been recorded were not, in one line; empty where all were.
std::string why_unrecorded(const std::vector<CaseContracts>& cases);

/// Whether any contract of any case is broken.
bool any_broken(const std::vector<CaseContracts>& cases);

}  // namespace stepscope::bench
