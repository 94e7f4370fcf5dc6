#include "results/comparison/read_folder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/parse.h"
#include "core/printable.h"
#include "results/comparison/json_file.h"
#include "results/csv.h"
#include "results/csv_stream.h"
#include "results/percentile.h"
#include "results/schema.h"

namespace stepscope::results {
namespace {

namespace fs = std::filesystem;

/// Columns of results.csv that must agree before figures may be compared.
constexpr std::array<std::string_view, 15> kConditionColumns = {
    "schema_version", "device",   "model",      "global_numel",      "topology",
    "wrapping",       "replicas", "dtype",      "optimizer",         "state_policy",
    "world_size",     "threads",  "build_type", "percentile_method", "substitute"};

/// The condition `substitute` of a run that is none.
constexpr const char* kNoSubstitute = "none";

/// Keys of the manifest that must.
constexpr std::array<const char*, 3> kConditionKeys = {"cpu_model", "cpus_usable",
                                                       "device_description"};

[[noreturn]] void fail(const fs::path& path, std::string what, std::string advice,
                       std::int64_t line = 0) {
  throw Error(std::move(what), std::move(advice), {.file = path.string(), .line = line});
}

void require_regular(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) {
    fail(path, "cannot be read", "is this a run folder? give the path that the benchmark printed");
  }
}

nlohmann::json read_manifest(const fs::path& folder) {
  const fs::path path = folder / "manifest.json";
  require_regular(path);
  const nlohmann::json manifest = read_json_file(path);
  if (!manifest.is_object()) {
    fail(path, "is not the manifest of a run folder", "the file was cut off or changed");
  }
  const nlohmann::json version = manifest.value("schema_version", nlohmann::json());
  if (version != schema_version()) {
    fail(path,
         "has schema_version " + version.dump() + ", and this program knows " +
             std::to_string(schema_version()),
         "compare it with the stepscope that wrote it, or give its results.csv alone");
  }
  return manifest;
}

std::string text_of(const nlohmann::json& manifest, const char* key) {
  const auto found = manifest.find(key);
  if (found == manifest.end() || found->is_null()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

/// The lines of a list of texts in the manifest, each in quotes; of a long list the first ones.
std::string quoted_lines(const nlohmann::json& manifest, const char* key) {
  constexpr std::size_t kMostLines = 8;
  const auto found = manifest.find(key);
  if (found == manifest.end() || !found->is_array()) return {};
  std::string text;
  std::size_t lines = 0;
  for (const nlohmann::json& line : *found) {
    if (!line.is_string() || ++lines > kMostLines) continue;
    text += (text.empty() ? "" : ", ") + printable(line.get_ref<const std::string&>(), 200);
  }
  if (lines > kMostLines) text += ", and " + std::to_string(lines - kMostLines) + " more";
  return text;
}

/// What the launcher recorded of a run that has no result (bench/slurm/submit), or nothing: the
/// reason, whose doing it was, Slurm's name for it and its words, and the queue at that time.
std::string what_stopped_it(const nlohmann::json& manifest) {
  std::string text = text_of(manifest, "reason");
  if (text.empty()) return {};
  std::string classed;
  for (const char* key : {"class", "code"}) {
    const std::string value = text_of(manifest, key);
    if (!value.empty()) classed += (classed.empty() ? "" : ", ") + value;
  }
  text = ": " + text;
  if (!classed.empty()) text += " (" + classed + ")";
  const std::string words = quoted_lines(manifest, "words");
  if (!words.empty()) text += "; in Slurm's words: " + words;
  const std::string queue = quoted_lines(manifest, "queue");
  if (!queue.empty()) text += "; the queue then: " + queue;
  return text;
}

/// The bitsandbytes that a run on PyTorch used: its version and the start of what identifies its
/// files.
std::string library_of(const nlohmann::json& manifest) {
  const auto packages = manifest.find("packages");
  if (packages == manifest.end() || !packages->is_object()) return {};
  const auto library = packages->find("bitsandbytes");
  if (library == packages->end() || !library->is_object()) return {};
  std::string text = "bitsandbytes " + text_of(*library, "version");
  for (const char* key : {"files_sha256", "commit", "wheel_files_sha256"}) {
    const std::string files = text_of(*library, key);
    if (!files.empty()) return text + " (" + files.substr(0, 8) + ")";
  }
  return text;
}

/// The pair of turns that a run is one side of.
std::string pair_of(const nlohmann::json& manifest) {
  const auto turns = manifest.find("turns");
  return turns != manifest.end() && turns->is_object() ? text_of(*turns, "pair") : std::string();
}

/// Why a folder may not be compared; empty where it may.
std::string unusable(const fs::path& folder, const nlohmann::json& manifest) {
  const std::string status = text_of(manifest, "status");
  if (status == "not-run") return "was not run" + what_stopped_it(manifest);
  const fs::path name = fs::weakly_canonical(fs::absolute(folder)).filename();
  if (status == "complete" && !name.string().ends_with(".incomplete")) return {};
  const std::string known = what_stopped_it(manifest);
  return "is not complete (status " + (status.empty() ? "none" : status) + ")" +
         (known.empty() ? ": it still goes on or was cut short" : known);
}

/// The worse of two verdicts over ranks: one broken rank breaks, one unverified leaves unverified.
/// A word that is none of them verifies nothing.
std::string worse_contract(const std::string& a, const std::string& b) {
  if (a == "broken" || b == "broken") return "broken";
  if (a.empty() && b.empty()) return {};
  const auto fine = [](const std::string& one) { return one.empty() || one == "ok"; };
  return fine(a) && fine(b) ? "ok" : "unverified";
}

void take_larger(std::optional<std::int64_t>& largest, const std::optional<std::int64_t>& value) {
  if (value && (!largest || *value > *largest)) largest = value;
}

/// Throws Error where a time or size is negative.
void require_possible(const fs::path& path, std::string_view column, std::int64_t value,
                      std::int64_t line) {
  if (value >= 0) return;
  fail(path, "column " + std::string(column) + " is " + std::to_string(value) + ", below 0",
       "the file was changed, or something else wrote it", line);
}

/// Takes the rows of results.csv one by one.
class ResultRows {
 public:
  ResultRows(const CsvTable& table, MeasuredRun& run) : table_(table), run_(run) {}

  void add(const CsvRow& row) {
    const std::string name = text(row, "benchmark");
    if (name.empty()) fail(table_.path, "the row names no benchmark", "give one", row.line);
    const std::string repetition = text(row, "repetition");
    if (!seen_.insert({name, repetition, text(row, "rank")}).second) {
      fail(table_.path, "a row of the same benchmark, repetition and rank came before",
           "remove one of them, or give each run its own file", row.line);
    }
    BenchmarkRun& benchmark = find_or_add_benchmark(run_, name);
    add_conditions(row, benchmark);
    const std::string status = text(row, "status");
    if (!status.empty() && status != "ok") {
      benchmark.status = status;
      benchmark.status_reason = text(row, "status_reason");
    }
    // Every rank's row repeats the figures of the job.
    const std::pair key{name, repetition};
    add_time(row, "p50_ns", medians_[key]);
    add_time(row, "p90_ns", tails_[key]);
    take_larger(benchmark.state_bytes, integer(row, "state_bytes"));
    take_larger(benchmark.peak_allocated_bytes, integer(row, "peak_allocated_bytes"));
    benchmark.contract = worse_contract(benchmark.contract, text(row, "contract"));
  }

  /// The figures over all repetitions. To be called after the last row.
  void finish() {
    for (BenchmarkRun& benchmark : run_.benchmarks) {
      // Said of every run, so that one from before there was such a column is no substitute either.
      std::string& substitute = benchmark.conditions["substitute"];
      if (substitute.empty())
        substitute = run_.substitute.empty() ? kNoSubstitute : run_.substitute;
      if (substitute != kNoSubstitute) run_.substitute = substitute;
      benchmark.p50_ns = quantile(values_of(medians_, benchmark.benchmark), 0.5);
      benchmark.p90_ns = quantile(values_of(tails_, benchmark.benchmark), 0.5);
    }
  }

 private:
  using Figures = std::map<std::pair<std::string, std::string>, std::optional<std::int64_t>>;

  void add_time(const CsvRow& row, std::string_view column, std::optional<std::int64_t>& known) {
    const auto ns = integer(row, column);
    if (!ns) return;
    if (known && *known != *ns) {
      fail(table_.path,
           "column " + std::string(column) + " is " + std::to_string(*ns) + " and was " +
               std::to_string(*known) + " in the row of another rank",
           "the rows are of different runs: give each its own file", row.line);
    }
    known = ns;
  }

  static std::vector<double> values_of(const Figures& figures, const std::string& benchmark) {
    std::vector<double> values;
    for (auto at = figures.lower_bound({benchmark, ""});
         at != figures.end() && at->first.first == benchmark; ++at) {
      if (at->second) values.push_back(static_cast<double>(*at->second));
    }
    return values;
  }

  void add_conditions(const CsvRow& row, BenchmarkRun& benchmark) {
    for (const std::string_view column : kConditionColumns) {
      const std::string value = text(row, column);
      if (value.empty()) continue;
      const auto known = benchmark.conditions.emplace(column, value).first;
      // Ranks may have other numbers of threads; what a job is must be the same in its rows.
      if (known->second != value && column != "threads") {
        fail(table_.path,
             "column " + std::string(column) + " is \"" + value + "\" and was \"" + known->second +
                 "\" in an earlier row of this benchmark",
             "the rows are of different runs: give each its own file", row.line);
      }
    }
  }

  std::string text(const CsvRow& row, std::string_view column) const {
    const auto position = table_.find(column);
    return position ? row.fields[*position] : std::string();
  }

  std::optional<std::int64_t> integer(const CsvRow& row, std::string_view column) const {
    const auto position = table_.find(column);
    const auto value = position ? table_.integer(row, *position) : std::nullopt;
    if (value) require_possible(table_.path, column, *value, row.line);
    return value;
  }

  const CsvTable& table_;
  MeasuredRun& run_;
  std::set<std::array<std::string, 3>> seen_;
  Figures medians_;
  Figures tails_;
};

void check_rows(const fs::path& path, const nlohmann::json& manifest, const char* table,
                std::int64_t rows) {
  const auto all = manifest.find("rows");
  const bool said = all != manifest.end() && all->is_object() && all->contains(table);
  const nlohmann::json expected = said ? all->at(table) : nlohmann::json();
  if (expected != rows) {
    fail(path, "holds " + std::to_string(rows) + " rows, the manifest says " + expected.dump(),
         "the file was changed or cut off");
  }
}

/// Rows below the header. Lines are counted where no quote can hide a line break.
std::int64_t count_rows(const fs::path& path) {
  require_regular(path);
  std::ifstream in(path, std::ios::binary);
  std::vector<char> buffer(std::size_t{1} << 20);
  std::int64_t lines = 0;
  char last = '\n';
  bool quoted = false;
  while (!quoted &&
         (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0)) {
    const auto size = static_cast<std::size_t>(in.gcount());
    lines += std::count(buffer.data(), buffer.data() + size, '\n');
    quoted = std::memchr(buffer.data(), '"', size) != nullptr;
    last = buffer[size - 1];
  }
  if (quoted) {
    CsvStream stream(path);
    std::int64_t records = 0;
    while (stream.next()) ++records;
    return records - 1;
  }
  if (last != '\n') fail(path, "its last line has no line end", "the file was cut off");
  return lines - 1;
}

std::int64_t whole_number(const CsvStream& stream, const char* column, std::string_view text) {
  try {
    return parse_int(std::string("column ") + column, text, INT64_MIN, INT64_MAX);
  } catch (const Error& error) {
    stream.fail(stream.line(), error.what_failed(), error.advice());
  }
}

MeasuredRun read_samples_file(const fs::path& path) {
  CsvStream stream(path);
  stream.next();
  const std::vector<std::string> header(stream.fields().begin(), stream.fields().end());
  require_distinct_columns(stream, header);
  const auto column = [&](std::string_view name) {
    const auto found = std::find(header.begin(), header.end(), name);
    return static_cast<std::size_t>(found - header.begin());
  };
  const std::size_t benchmark_column = column("benchmark");
  const std::size_t time_column = column("step_ns");
  MeasuredRun run;
  run.path = path;
  std::map<std::string, std::vector<std::int64_t>, std::less<>> samples;
  while (stream.next()) {
    require_fields(stream, header.size());
    const std::string_view name = stream.fields()[benchmark_column];
    if (name.empty()) fail(path, "the row names no benchmark", "give one", stream.line());
    auto found = samples.find(name);
    if (found == samples.end()) {
      found = samples.emplace(name, std::vector<std::int64_t>()).first;
      find_or_add_benchmark(run, found->first);
    }
    const auto ns = whole_number(stream, "step_ns", stream.fields()[time_column]);
    require_possible(path, "step_ns", ns, stream.line());
    found->second.push_back(ns);
  }
  for (BenchmarkRun& benchmark : run.benchmarks) {
    const auto& times = samples.find(benchmark.benchmark)->second;
    benchmark.p50_ns = static_cast<double>(*percentile(times, 50));
    benchmark.p90_ns = static_cast<double>(*percentile(times, 90));
  }
  return run;
}

}  // namespace

MeasuredRun read_folder(const fs::path& path) {
  const nlohmann::json manifest = read_manifest(path);
  MeasuredRun run;
  run.path = path;
  run.commit = text_of(manifest, "commit");
  if (text_of(manifest, "dirty") == "true") run.commit += "-dirty";
  run.library = library_of(manifest);
  run.pair = pair_of(manifest);
  run.substitute = text_of(manifest, "substitute");
  run.started = text_of(manifest, "created_utc");
  run.unusable = unusable(path, manifest);
  if (!run.unusable.empty()) return run;
  const fs::path results_path = path / results_table().file;
  require_regular(results_path);
  const CsvTable table = read_csv(results_path);
  const std::size_t version_column = table.column("schema_version");
  ResultRows rows(table, run);
  for (const CsvRow& row : table.rows) {
    if (table.integer(row, version_column) != schema_version()) {
      fail(results_path, "has another schema_version than the manifest",
           "compare it with the stepscope that wrote it", row.line);
    }
    rows.add(row);
  }
  rows.finish();
  check_rows(results_path, manifest, "results", static_cast<std::int64_t>(table.rows.size()));
  const fs::path samples_path = path / samples_table().file;
  check_rows(samples_path, manifest, "samples", count_rows(samples_path));
  for (BenchmarkRun& benchmark : run.benchmarks) {
    for (const char* key : kConditionKeys) {
      std::string value = text_of(manifest, key);
      if (!value.empty()) benchmark.conditions[key] = std::move(value);
    }
  }
  return run;
}

MeasuredRun read_table_file(const fs::path& path) {
  {
    CsvStream stream(path);
    if (!stream.next()) stream.fail(1, "the file is empty", "a header line is needed");
    const auto header = stream.fields();
    const auto has = [&](std::string_view name) {
      return std::find(header.begin(), header.end(), name) != header.end();
    };
    if (has("benchmark") && has("step_ns")) return read_samples_file(path);
    if (!has("benchmark") || !has("p50_ns")) {
      stream.fail(1,
                  "is neither a results.csv (columns benchmark and p50_ns) nor a samples.csv "
                  "(benchmark and step_ns) nor a file of Google Benchmark",
                  "check the path");
    }
  }
  const CsvTable table = read_csv(path);
  MeasuredRun run;
  run.path = path;
  ResultRows rows(table, run);
  for (const CsvRow& row : table.rows) rows.add(row);
  rows.finish();
  return run;
}

}  // namespace stepscope::results
