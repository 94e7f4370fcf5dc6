#pragma once

/// Purpose: verdicts as JSON: what trace_check --json and contracts.json in a run folder hold.
///
/// Usage:
///     write_verdicts(out, judgement.verdicts);   // "[\n{...},\n{...}\n]"
///
/// Caveats: what does not apply is left out (no rank, no step, no n). Names that are not UTF-8 have
/// the replacement character where they are not.

#include <nlohmann/json.hpp>
#include <ostream>
#include <span>

#include "tracer/contracts.h"
#include "tracer/verdict.h"

namespace stepscope::tracer {

/// {"contract", "rank", "step", "ordinal", "status", "reason", "events": [{"name", "kind", "n" or
/// "bytes", "start_ns", ...}], "event_count"}
nlohmann::ordered_json verdict_json(const Verdict& verdict);

nlohmann::ordered_json coverage_json(const Coverage& coverage);
nlohmann::ordered_json health_json(const Health& health);

/// A JSON list of `verdicts`, one a line, written one by one: there may be a million.
void write_verdicts(std::ostream& out, std::span<const Verdict> verdicts);

/// `json` in one line that is always UTF-8.
std::string one_line(const nlohmann::ordered_json& json);

}  // namespace stepscope::tracer
