#include "tracer/verdict_json.h"

#include <string>

namespace stepscope::tracer {
namespace {

nlohmann::ordered_json offender_json(const Offender& offender) {
  nlohmann::ordered_json json = {{"name", offender.name}, {"kind", event_kind_name(offender.kind)}};
  if (offender.value) {
    const bool bytes = offender.kind == EventKind::copy || offender.kind == EventKind::set ||
                       offender.kind == EventKind::collective;
    json[bytes ? "bytes" : "n"] = *offender.value;
  }
  if (offender.kind == EventKind::copy) json["direction"] = copy_direction_name(offender.direction);
  if (offender.collective != CollectiveKind::none) {
    json["collective"] = collective_kind_name(offender.collective);
  }
  json["start_ns"] = offender.start_ns;
  json["end_ns"] = offender.end_ns;
  if (offender.device != kHost) {
    json["device"] = offender.device;
    json["stream"] = offender.stream;
  }
  if (offender.thread != 0) json["thread"] = offender.thread;
  if (!offender.range.empty()) json["range"] = offender.range;
  return json;
}

}  // namespace

nlohmann::ordered_json verdict_json(const Verdict& verdict) {
  nlohmann::ordered_json json = {{"contract", contract_name(verdict.contract)}};
  if (verdict.rank) json["rank"] = *verdict.rank;
  if (verdict.ordinal) {
    json["step"] = verdict.step;
    json["ordinal"] = *verdict.ordinal;
  }
  json["status"] = status_name(verdict.status);
  if (!verdict.reason.empty()) json["reason"] = verdict.reason;
  if (verdict.offender_count > 0) {
    json["event_count"] = verdict.offender_count;
    for (const Offender& offender : verdict.offenders) {
      json["events"].push_back(offender_json(offender));
    }
  }
  return json;
}

nlohmann::ordered_json coverage_json(const Coverage& coverage) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (coverage.rank) json["rank"] = *coverage.rank;
  json["steps"] = coverage.steps;
  json[coverage.device ? "steps_with_kernels" : "steps_with_operators"] = coverage.covered;
  if (coverage.median_update_ns) json["median_update_ns"] = *coverage.median_update_ns;
  return json;
}

nlohmann::ordered_json health_json(const Health& health) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const HealthCount& count : kHealthCounts)
    json[std::string(count.name)] = health.*count.count;
  return json;
}

std::string one_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void write_verdicts(std::ostream& out, std::span<const Verdict> verdicts) {
  out << '[';
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    out << (i == 0 ? "\n" : ",\n") << one_line(verdict_json(verdicts[i]));
  }
  out << (verdicts.empty() ? "]" : "\n]");
}

}  // namespace stepscope::tracer
