#include "tracer/verdict_summary.h"

#include <string>
#include <string_view>

#include "core/printable.h"

namespace stepscope::tracer {
namespace {

/// Names come from files: nothing in them may move the cursor or clear the screen.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 160;
  const std::string quoted = printable(text, kLongest);
  const bool cut = quoted.ends_with("\"...");
  return quoted.substr(1, quoted.size() - (cut ? 5 : 2)) + (cut ? "..." : "");
}

/// Nanoseconds as milliseconds, without a detour through a floating-point number.
std::string milliseconds(std::int64_t ns) {
  const std::string sign = ns < 0 ? "-" : "";
  const std::uint64_t size =
      ns < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  std::string fraction = std::to_string(size % 1'000'000);
  fraction.insert(0, 6 - fraction.size(), '0');
  return sign + std::to_string(size / 1'000'000) + "." + fraction + " ms";
}

std::string offender_line(const Offender& offender) {
  std::string line = "  " + shown(offender.name);
  if (offender.value) {
    line += offender.kind == EventKind::copy || offender.kind == EventKind::collective
                ? ", " + std::to_string(*offender.value) + " bytes"
                : ", n = " + std::to_string(*offender.value);
  }
  if (offender.kind == EventKind::copy) {
    line += ", ";
    line += copy_direction_name(offender.direction);
  }
  line += ", at " + milliseconds(offender.start_ns) + " for " +
          milliseconds(offender.end_ns - offender.start_ns);
  if (offender.device != kHost) {
    line += ", device " + std::to_string(offender.device) + " stream " +
            std::to_string(offender.stream);
  }
  if (!offender.range.empty()) line += ", in " + shown(offender.range);
  return line;
}

}  // namespace

Status ContractSummary::status() const {
  if (broken > 0) return Status::broken;
  return unverified > 0 || ok == 0 ? Status::unverified : Status::ok;
}

std::vector<ContractSummary> summarize(std::span<const Verdict> verdicts) {
  std::vector<ContractSummary> all;
  for (const Contract contract : all_contracts()) all.push_back({.contract = contract});
  for (const Verdict& verdict : verdicts) {
    ContractSummary& line = all[static_cast<std::size_t>(verdict.contract)];
    switch (verdict.status) {
      case Status::ok:
        ++line.ok;
        break;
      case Status::broken:
        ++line.broken;
        if (line.first_broken == nullptr) line.first_broken = &verdict;
        break;
      case Status::unverified:
        ++line.unverified;
        if (line.first_unverified == nullptr) line.first_unverified = &verdict;
        break;
    }
  }
  std::erase_if(all, [](const ContractSummary& line) {
    return line.ok + line.broken + line.unverified == 0;
  });
  return all;
}

std::vector<std::string> explained(const Verdict& verdict) {
  std::vector<std::string> lines = {
      (verdict.rank ? "rank " + std::to_string(*verdict.rank) : std::string("unknown rank")) +
      (verdict.ordinal ? ", " + shown(verdict.step) : "") + ": " + shown(verdict.reason)};
  for (const Offender& offender : verdict.offenders) lines.push_back(offender_line(offender));
  const auto shown = static_cast<std::int64_t>(verdict.offenders.size());
  if (verdict.offender_count > shown) {
    lines.push_back("  and " + std::to_string(verdict.offender_count - shown) + " more");
  }
  return lines;
}

}  // namespace stepscope::tracer
