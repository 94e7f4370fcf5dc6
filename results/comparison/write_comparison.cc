#include "results/comparison/write_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/printable.h"
#include "results/csv.h"

namespace stepscope::results {
namespace {

constexpr const char* kNone = "n/a";

struct Unit {
  const char* name;
  double size;
};

template <std::size_t N>
Unit largest_unit_within(const std::array<Unit, N>& units, double value) {
  Unit unit = units.front();
  for (const Unit& candidate : units) {
    if (value >= candidate.size) unit = candidate;
  }
  return unit;
}

/// Both values in the unit of the smaller: 1500 ms and 500 ms, not 1.5 s and 500 ms.
std::pair<std::string, std::string> times(const std::optional<double>& a,
                                          const std::optional<double>& b) {
  constexpr std::array kUnits = {Unit{"ns", 1}, Unit{"µs", 1e3}, Unit{"ms", 1e6}, Unit{"s", 1e9}};
  const double smaller = std::min(a.value_or(b.value_or(0)), b.value_or(a.value_or(0)));
  const Unit unit = largest_unit_within(kUnits, smaller);
  const auto text = [&](const std::optional<double>& ns) -> std::string {
    if (!ns) return kNone;
    const double value = *ns / unit.size;
    return fmt::format("{:.{}f} {}", value, value >= 1000 ? 0 : value >= 100 ? 1 : 3, unit.name);
  };
  return {text(a), text(b)};
}

std::string bytes(std::int64_t value) {
  constexpr std::array kUnits = {Unit{"B", 1}, Unit{"KiB", 1024}, Unit{"MiB", 1024. * 1024},
                                 Unit{"GiB", 1024. * 1024 * 1024}};
  const auto size = static_cast<double>(value);
  const Unit unit = largest_unit_within(kUnits, size);
  if (unit.size == 1) return fmt::format("{} B", value);
  return fmt::format("{:.2f} {}", size / unit.size, unit.name);
}

/// "3 MiB", or "3 MiB → 4 MiB" where they differ.
std::string both_bytes(const std::optional<std::int64_t>& a, const std::optional<std::int64_t>& b) {
  if (a == b) return a ? bytes(*a) : kNone;
  return (a ? bytes(*a) : kNone) + " → " + (b ? bytes(*b) : kNone);
}

/// One line, safe inside a Markdown table: nothing of it is markup, so that of BM<int> the <int> is
/// still to be read in a pull request.
std::string cell(const std::string& text) {
  // Foreign bytes that are no UTF-8, or on which a terminal would act, are shown as what they are.
  const bool foreign =
      std::any_of(text.begin(), text.end(), [](char c) { return c < 0; }) && !is_printable(text);
  std::string result;
  for (const char c : text) {
    if (std::string_view("\\`*[<&|").find(c) != std::string_view::npos) result += '\\';
    const auto byte = static_cast<unsigned char>(c);
    if (foreign && byte >= 0x80) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += byte < 0x20 || byte == 0x7f ? ' ' : c;
    }
  }
  return result;
}

std::string ratio_text(const std::optional<TimeRatio>& time) {
  if (!time) return kNone;
  const auto text = [](double ratio) {
    return ratio < 1e6 ? fmt::format("{:.3f}", ratio) : fmt::format("{:.3g}", ratio);
  };
  if (!time->low) return text(time->ratio);
  return text(time->ratio) + " (" + text(*time->low) + " to " + text(*time->high) + ")";
}

/// What would settle an uncertain time.
std::string more_text(const Comparison& comparison, const ComparedBenchmark& row) {
  if (row.time_verdict != Verdict::uncertain) return {};
  const bool paired = comparison.options.paired;
  if (!row.time->spread) {
    return fmt::format(", needs {} {}", kLeastRuns, paired ? "pairs" : "runs a side");
  }
  const bool one = row.runs_more == 1;
  const std::string units =
      paired ? (one ? "pair" : "pairs") : (one ? "run a side" : "runs a side");
  if (!row.runs_more) return fmt::format(", not even 10,000 more {} would tell", units);
  return comparison.runs_count_on()
             ? fmt::format(", {} more {} would tell", *row.runs_more, units)
             : fmt::format(", {} {} in turn would tell", *row.runs_more, units);
}

std::string verdict_text(const Comparison& comparison, const ComparedBenchmark& row) {
  const bool good = row.verdict == Verdict::same || row.verdict > Verdict::only_in_new;
  std::string text = verdict_name(row.verdict);
  if (is_regression(row.verdict)) text = "**" + text + "**";
  return good ? text : text + more_text(comparison, row);
}

std::string contract_text(const ComparedBenchmark& row) {
  const auto name = [](const std::string& verdict) { return verdict.empty() ? kNone : verdict; };
  if (row.base.contract == row.fresh.contract) return name(row.base.contract);
  return name(row.base.contract) + " → " + name(row.fresh.contract);
}

/// "2 slower, 1 same", worst first.
std::string summary(const Comparison& comparison) {
  std::map<Verdict, std::int64_t> counts;
  for (const ComparedBenchmark& row : comparison.benchmarks) ++counts[row.verdict];
  std::string text;
  for (const auto& [verdict, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, verdict_name(verdict));
  }
  return text.empty() ? "no benchmark" : text;
}

std::string side_text(const std::vector<MeasuredRun>& runs) {
  std::set<std::string> commits;
  std::set<std::string> libraries;
  for (const MeasuredRun& run : runs) {
    if (!run.library.empty()) libraries.insert(run.library);
    if (run.commit.empty()) continue;
    const bool dirty = run.commit.ends_with("-dirty");
    commits.insert(run.commit.substr(0, 12) + (dirty ? "-dirty" : ""));
  }
  std::string text = fmt::format("{} run{}", runs.size(), runs.size() == 1 ? "" : "s");
  for (const std::string& commit : commits) {
    text += (commit == *commits.begin() ? " of " : ", ") + cell(commit);
  }
  for (const std::string& library : libraries) {
    text += (library == *libraries.begin() ? " with " : ", ") + cell(library);
  }
  return text;
}

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json json_of(const SideFigures& side) {
  nlohmann::ordered_json json = {{"runs", side.runs},
                                 {"p50_ns", or_null(side.p50_ns)},
                                 {"p90_ns", or_null(side.p90_ns)},
                                 {"state_bytes", or_null(side.state_bytes)},
                                 {"peak_allocated_bytes", or_null(side.peak_allocated_bytes)},
                                 {"contract", nullptr}};
  if (!side.contract.empty()) json["contract"] = side.contract;
  return json;
}

}  // namespace

std::string comparison_markdown(const Comparison& comparison) {
  const char* units = comparison.options.paired ? "pairs" : "runs a side";
  std::string text = fmt::format("**{}**: {} against base, {}\n\n", summary(comparison),
                                 side_text(comparison.fresh), side_text(comparison.base));
  text +=
      "| benchmark | p50 base | p50 new | p90 base | p90 new | ratio (99 %) | verdict | state | "
      "peak memory | contract |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- |\n";
  for (const ComparedBenchmark& row : comparison.benchmarks) {
    const auto [base_p50, new_p50] = times(row.base.p50_ns, row.fresh.p50_ns);
    const auto [base_p90, new_p90] = times(row.base.p90_ns, row.fresh.p90_ns);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                        cell(row.benchmark), base_p50, new_p50, base_p90, new_p90,
                        ratio_text(row.time), verdict_text(comparison, row),
                        both_bytes(row.base.state_bytes, row.fresh.state_bytes),
                        both_bytes(row.base.peak_allocated_bytes, row.fresh.peak_allocated_bytes),
                        contract_text(row));
  }
  std::string list;
  for (const ComparedBenchmark& row : comparison.benchmarks) {
    for (const std::string& reason : row.reasons) {
      list += fmt::format("- {}: {}\n", cell(row.benchmark), cell(reason));
    }
    for (const RepetitionChange& change : row.repetitions) {
      list += fmt::format("- {}: time {:+.4f}, CPU {}\n", cell(row.benchmark), change.time,
                          change.cpu ? fmt::format("{:+.4f}", *change.cpu) : kNone);
    }
    if (row.u_test_time) {
      list += fmt::format("- {}: U test p {:.4f}, CPU {}\n", cell(row.benchmark), *row.u_test_time,
                          row.u_test_cpu ? fmt::format("{:.4f}", *row.u_test_cpu) : kNone);
    }
  }
  for (const std::string& note : comparison.notes) list += "- " + cell(note) + "\n";
  if (!list.empty()) text += "\n" + list;
  std::optional<std::int64_t> most;
  for (const ComparedBenchmark& row : comparison.benchmarks) {
    most = std::max(most, row.runs_for_10_percent);
  }
  text += fmt::format(
      "\nRatio: new / base of the medians of whole {}; slower or faster: beyond {:g} % and p ≤ "
      "{:g} over all benchmarks together.",
      comparison.options.paired ? "pairs" : "runs", comparison.options.threshold * 100, kAlpha);
  if (most) {
    text += fmt::format(" A change of 10 % needs about {} {}{}.", *most, units,
                        comparison.options.paired ? "" : ", launched in turn");
  }
  return text + "\n";
}

std::string comparison_csv(const Comparison& comparison) {
  std::vector<std::string> header = {"benchmark",    "verdict",    "ratio",
                                     "ratio_low",    "ratio_high", "p_value",
                                     "time_verdict", "runs_more",  "runs_for_10_percent"};
  for (const char* side : {"base", "new"}) {
    for (const char* name :
         {"runs", "p50_ns", "p90_ns", "state_bytes", "peak_allocated_bytes", "contract"}) {
      header.push_back(std::string(side) + "_" + name);
    }
  }
  header.emplace_back("reasons");
  std::string text = csv_record(header);
  const auto number = [](const std::optional<double>& value) {
    return value ? csv_number(*value) : std::string();
  };
  const auto integer = [](const std::optional<std::int64_t>& value) {
    return value ? csv_integer(*value) : std::string();
  };
  for (const ComparedBenchmark& row : comparison.benchmarks) {
    const TimeRatio time = row.time.value_or(TimeRatio{});
    std::vector<std::string> fields = {row.benchmark,
                                       verdict_name(row.verdict),
                                       row.time ? csv_number(time.ratio) : "",
                                       number(time.low),
                                       number(time.high),
                                       number(time.p_value),
                                       row.time_verdict ? verdict_name(*row.time_verdict) : "",
                                       integer(row.runs_more),
                                       integer(row.runs_for_10_percent)};
    for (const SideFigures* side : {&row.base, &row.fresh}) {
      fields.insert(fields.end(), {csv_integer(side->runs), number(side->p50_ns),
                                   number(side->p90_ns), integer(side->state_bytes),
                                   integer(side->peak_allocated_bytes), side->contract});
    }
    fields.push_back(fmt::format("{}", fmt::join(row.reasons, "; ")));
    text += csv_record(fields);
  }
  return text;
}

std::string comparison_json(const Comparison& comparison) {
  using Json = nlohmann::ordered_json;
  const auto side = [](const std::vector<MeasuredRun>& runs) {
    Json list = Json::array();
    for (const MeasuredRun& run : runs) {
      list.push_back({{"path", run.path.string()}, {"commit", run.commit}});
      if (!run.library.empty()) list.back()["library"] = run.library;
    }
    return list;
  };
  Json rows = Json::array();
  for (const ComparedBenchmark& row : comparison.benchmarks) {
    const TimeRatio time = row.time.value_or(TimeRatio{});
    Json json = {
        {"benchmark", row.benchmark},
        {"verdict", verdict_name(row.verdict)},
        {"ratio", row.time ? Json(time.ratio) : Json()},
        {"ratio_low", or_null(time.low)},
        {"ratio_high", or_null(time.high)},
        {"p_value", or_null(time.p_value)},
        {"time_verdict", row.time_verdict ? Json(verdict_name(*row.time_verdict)) : Json()},
        {"runs_more", or_null(row.runs_more)},
        {"runs_for_10_percent", or_null(row.runs_for_10_percent)},
        {"base", json_of(row.base)},
        {"new", json_of(row.fresh)},
        {"reasons", row.reasons}};
    if (!row.repetitions.empty()) {
      Json changes = Json::array();
      for (const RepetitionChange& change : row.repetitions) {
        changes.push_back({{"time", change.time}, {"cpu", or_null(change.cpu)}});
      }
      json["repetitions"] = changes;
      json["u_test_time"] = or_null(row.u_test_time);
      json["u_test_cpu"] = or_null(row.u_test_cpu);
    }
    rows.push_back(std::move(json));
  }
  const Json document = {{"summary", summary(comparison)},
                         {"regressions", comparison.regressions()},
                         {"paired", comparison.options.paired},
                         {"in_turn", comparison.runs_count_on()},
                         {"threshold", comparison.options.threshold},
                         {"alpha", kAlpha},
                         {"base", side(comparison.base)},
                         {"new", side(comparison.fresh)},
                         {"notes", comparison.notes},
                         {"benchmarks", rows}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace stepscope::results
