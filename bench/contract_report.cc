#include "bench/contract_report.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "core/durable_file.h"
#include "core/printable.h"
#include "tracer/verdict.h"
#include "tracer/verdict_json.h"

namespace stepscope::bench {
namespace {

struct Line {
  std::map<std::string, std::int64_t> counts;  ///< by status
  std::map<std::string, std::string> reasons;  ///< by status: where and why, the first one
};

std::string where_and_why(const CaseContracts& each, const nlohmann::ordered_json& verdict) {
  std::string text = each.benchmark;
  if (verdict.contains("rank"))
    text += fmt::format(", rank {}", verdict["rank"].get<std::int64_t>());
  if (verdict.contains("step")) text += ", " + verdict["step"].get<std::string>();
  return text + ": " + verdict.value("reason", "");
}

}  // namespace

void write_contracts(const std::filesystem::path& path, const std::vector<CaseContracts>& cases) {
  nlohmann::ordered_json json = {{"schema_version", 1}, {"cases", nlohmann::json::array()}};
  for (const CaseContracts& each : cases) {
    nlohmann::ordered_json traces = nlohmann::json::array();
    nlohmann::ordered_json verdicts = nlohmann::json::array();
    for (const RankContracts& rank : each.ranks) {
      traces.push_back(rank.trace);
      for (const auto& verdict : rank.verdicts) verdicts.push_back(verdict);
    }
    json["cases"].push_back({{"benchmark", each.benchmark},
                             {"repetition", each.repetition},
                             {"traces", std::move(traces)},
                             {"verdicts", std::move(verdicts)}});
  }
  DurableFile file(path.string());
  const std::string text = tracer::one_line(json) + "\n";
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void print_contracts(const std::vector<CaseContracts>& cases) {
  std::map<std::string, Line> lines;
  for (const CaseContracts& each : cases) {
    for (const RankContracts& rank : each.ranks) {
      for (const auto& verdict : rank.verdicts) {
        Line& line = lines[verdict["contract"].get<std::string>()];
        const auto status = verdict["status"].get<std::string>();
        ++line.counts[status];
        line.reasons.try_emplace(status, where_and_why(each, verdict));
      }
    }
  }
  if (lines.empty()) return;
  constexpr const char* kRow = "{:<22} {:<10} {:>7} {:>7} {:>10}{}\n";
  fmt::print("\n");
  fmt::print(kRow, "contract", "verdict", "ok", "broken", "unverified", "  first reason");
  for (const tracer::Contract contract : tracer::all_contracts()) {
    Line& line = lines[std::string(tracer::contract_name(contract))];
    std::string verdict = line.counts["broken"] > 0 ? "broken" : "unverified";
    if (line.counts["broken"] + line.counts["unverified"] == 0 && line.counts["ok"] > 0) {
      verdict = "ok";
    }
    const auto reason = line.reasons.find(verdict);
    const bool says = verdict != "ok" && reason != line.reasons.end();
    fmt::print(kRow, tracer::contract_name(contract), verdict, line.counts["ok"],
               line.counts["broken"], line.counts["unverified"],
               says ? "  " + printable(reason->second, 400) : "");
  }
}

std::string why_unrecorded(const std::vector<CaseContracts>& cases) {
  for (const CaseContracts& each : cases) {
    for (const RankContracts& rank : each.ranks) {
      if (!rank.unrecorded.empty()) return rank.unrecorded;
    }
  }
  return "";
}

bool any_broken(const std::vector<CaseContracts>& cases) {
  for (const CaseContracts& each : cases) {
    for (const RankContracts& rank : each.ranks) {
      if (rank.status == tracer::status_name(tracer::Status::broken)) return true;
    }
  }
  return false;
}

}  // namespace stepscope::bench
