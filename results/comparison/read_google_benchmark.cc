#include "results/comparison/read_google_benchmark.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/parse.h"
#include "core/printable.h"
#include "results/comparison/json_file.h"
#include "results/csv.h"
#include "results/csv_stream.h"

namespace stepscope::results {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = "name,iterations,real_time,cpu_time,time_unit";

/// Nanoseconds in a unit; nothing for one that Google Benchmark does not know.
std::optional<double> nanoseconds_in(std::string_view unit) {
  if (unit == "ns") return 1;
  if (unit == "us") return 1e3;
  if (unit == "ms") return 1e6;
  if (unit == "s") return 1e9;
  return std::nullopt;
}

void add_percentiles(MeasuredRun& run) {
  for (BenchmarkRun& benchmark : run.benchmarks) {
    std::vector<double> times;
    for (const RepetitionTime& repetition : benchmark.repetitions) {
      times.push_back(repetition.real_ns);
    }
    benchmark.p50_ns = quantile(times, 0.5);
    benchmark.p90_ns = quantile(times, 0.9);
  }
}

/// 2^63 ns, 292 years: what no benchmark takes.
constexpr double kMostNs = 9223372036854775808.0;

/// Why `ns` cannot be the time of an iteration; empty where it can.
std::string impossible(double ns) {
  if (ns < 0) return "below 0";
  return ns <= kMostNs ? "" : "longer than 292 years";
}

/// A row of either format.
struct GoogleRow {
  std::string name;
  std::string aggregate;  ///< "median" and so on; empty for a repetition
  std::string error;      ///< why it was not measured
  bool skipped = false;   ///< of its own will: no failure
  double real_ns = 0;
  std::optional<double> cpu_ns;
};

void add_rows(MeasuredRun& run, const std::vector<GoogleRow>& rows) {
  const bool only_aggregates = std::none_of(
      rows.begin(), rows.end(), [](const GoogleRow& row) { return row.aggregate.empty(); });
  for (const GoogleRow& row : rows) {
    if (!row.aggregate.empty() && !(only_aggregates && row.aggregate == "median")) continue;
    BenchmarkRun& benchmark = find_or_add_benchmark(run, row.name);
    if (!row.error.empty()) {
      benchmark.status = row.skipped ? "skipped" : "failed";
      benchmark.status_reason = row.error;
      continue;
    }
    benchmark.repetitions.push_back({.real_ns = row.real_ns, .cpu_ns = row.cpu_ns});
  }
  add_percentiles(run);
}

std::string strip_suffix(const std::string& name, const std::string& aggregate) {
  const std::string suffix = "_" + aggregate;
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

/// The lines before the header: Google Benchmark writes what it knows of the machine there.
bool skip_to_header(std::istream& in, std::int64_t& lines) {
  std::string line;
  constexpr int kMost = 100;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  for (int i = 0; i < kMost && std::getline(in, line); ++i) {
    if (i == 0 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (line.starts_with(kHeader)) return true;
    ++lines;
  }
  return false;
}

}  // namespace

bool is_google_benchmark_csv(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in.is_open()) {
    throw Error("cannot be read", "check its permissions", {.file = path.string()});
  }
  std::int64_t lines = 0;
  return skip_to_header(in, lines);
}

MeasuredRun read_google_benchmark_csv(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::int64_t preamble = 0;
  skip_to_header(in, preamble);
  CsvStream stream(path, preamble);
  stream.next();
  const std::vector<std::string> header(stream.fields().begin(), stream.fields().end());
  require_distinct_columns(stream, header);
  const auto find = [&](std::string_view name) -> std::optional<std::size_t> {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found == header.end()) return std::nullopt;
    return static_cast<std::size_t>(found - header.begin());
  };
  const auto error_column = find("error_occurred");
  const auto message_column = find("error_message");
  std::vector<GoogleRow> rows;
  while (stream.next()) {
    const auto fields = stream.fields();
    require_fields(stream, header.size());
    if (fields[0].empty()) stream.fail(stream.line(), "the row names no benchmark", "give one");
    const auto time = [&](std::size_t column, double factor) -> std::optional<double> {
      if (fields[column].empty()) return std::nullopt;
      double ns = 0;
      try {
        ns = parse_double("column " + header[column], fields[column]) * factor;
      } catch (const Error& error) {
        stream.fail(stream.line(), error.what_failed(), error.advice());
      }
      if (const std::string why = impossible(ns); !why.empty()) {
        stream.fail(stream.line(),
                    "column " + header[column] + " is " + std::string(fields[column]) + ", " + why,
                    "the file was changed, or something else wrote it");
      }
      return ns;
    };
    GoogleRow row;
    row.name = fields[0];
    for (const char* aggregate : {"mean", "median", "stddev", "cv", "BigO", "RMS"}) {
      // The format has no other mark; an aggregate's row has no number of iterations or repeats
      // the name of the repetitions before it.
      const std::string base = strip_suffix(row.name, aggregate);
      const bool known = std::any_of(
          rows.begin(), rows.end(), [&](const GoogleRow& earlier) { return earlier.name == base; });
      if (base != row.name && (known || fields[1].empty())) {
        row.name = base;
        row.aggregate = aggregate;
        break;
      }
    }
    const bool failed = error_column && fields[*error_column] == "true";
    if (failed) row.error = message_column ? std::string(fields[*message_column]) : "failed";
    // Ratios such as cv and RMS carry no time.
    if (!failed && (row.aggregate.empty() || row.aggregate == "median")) {
      const auto factor = nanoseconds_in(fields[4]);
      if (!factor) {
        stream.fail(stream.line(), "column time_unit is \"" + std::string(fields[4]) + "\"",
                    "ns, us, ms and s are known");
      }
      const auto real = time(2, *factor);
      if (!real) stream.fail(stream.line(), "column real_time is empty", "write the file again");
      row.real_ns = *real;
      row.cpu_ns = time(3, *factor);
    }
    rows.push_back(std::move(row));
  }
  MeasuredRun run;
  run.path = path;
  add_rows(run, rows);
  return run;
}

MeasuredRun read_google_benchmark_json(const fs::path& path) {
  std::optional<std::size_t> entry_read;  // of the list of benchmarks
  const auto refuse = [&](const std::string& what) {
    std::int64_t line = 0;
    if (entry_read) {
      const std::vector<std::int64_t> lines = lines_of_entries(path, "benchmarks");
      if (*entry_read < lines.size()) line = lines[*entry_read];
    }
    throw Error(what, "give a file that --benchmark_out wrote",
                {.file = path.string(), .line = line});
  };
  const nlohmann::json file = read_json_file(path);
  if (!file.is_object() || !file.contains("benchmarks") || !file["benchmarks"].is_array()) {
    refuse("has no list \"benchmarks\"");
  }
  std::vector<GoogleRow> rows;
  MeasuredRun run;
  run.path = path;
  std::string place = "the context";
  try {
    for (std::size_t i = 0; i < file["benchmarks"].size(); ++i) {
      const nlohmann::json& entry = file["benchmarks"][i];
      entry_read = i;
      place = "benchmark " + std::to_string(i + 1) + " of the list";
      const std::string name = entry.at("name").get<std::string>();
      if (name.empty()) refuse(place + " has no name");
      place += ", " + printable(name) + ",";
      GoogleRow row;
      row.name = entry.value("run_name", name);
      if (row.name.empty()) refuse(place + " has an empty run_name");
      if (entry.value("run_type", "iteration") == "aggregate") {
        row.aggregate = entry.value("aggregate_name", "aggregate");
      }
      const auto time = [&](const char* key, double factor) {
        const double ns = entry.at(key).get<double>() * factor;
        if (const std::string why = impossible(ns); !why.empty()) {
          refuse(place + " has the " + key + " " + entry.at(key).dump() + ", " + why);
        }
        return ns;
      };
      row.skipped = entry.value("skipped", false);
      if (row.skipped) {
        row.error = entry.value("skip_message", "skipped");
      } else if (entry.value("error_occurred", false)) {
        row.error = entry.value("error_message", "failed");
      } else if (row.aggregate.empty() || row.aggregate == "median") {
        const std::string unit = entry.value("time_unit", "ns");
        const auto factor = nanoseconds_in(unit);
        if (!factor) refuse(place + " has the unknown time_unit " + printable(unit));
        row.real_ns = time("real_time", *factor);
        if (entry.contains("cpu_time")) row.cpu_ns = time("cpu_time", *factor);
      }
      rows.push_back(std::move(row));
    }
    entry_read.reset();
    add_rows(run, rows);
    place = "the context";
    const nlohmann::json context = file.value("context", nlohmann::json::object());
    run.started = context.value("date", "");
    for (BenchmarkRun& benchmark : run.benchmarks) {
      for (const auto& [key, condition] : {std::pair("host_name", "host"),
                                           {"num_cpus", "cpus_usable"},
                                           {"library_build_type", "build_type"}}) {
        if (!context.contains(key)) continue;
        const nlohmann::json& value = context[key];
        benchmark.conditions[condition] =
            value.is_string() ? value.get<std::string>() : value.dump();
      }
    }
  } catch (const nlohmann::json::exception& error) {
    const std::string text = error.what();
    refuse(place + " cannot be read: " + text.substr(std::min(text.size(), text.find("] ") + 2)));
  }
  return run;
}

}  // namespace stepscope::results
