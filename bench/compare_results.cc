// compare_results: whether one commit's runs are slower than another's. See --help.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/command_line.h"
#include "core/durable_file.h"
#include "core/error.h"
#include "core/parse.h"
#include "core/program.h"
#include "results/comparison/compare.h"
#include "results/comparison/read_run.h"
#include "results/comparison/write_comparison.h"

namespace stepscope::bench {
namespace {

constexpr const char* kFooter =
    R"(BASE and NEW are run folders, results.csv or samples.csv files, or what Google Benchmark's
--benchmark_out wrote (JSON or CSV), any number a side. With one of each the -- may be left out.

Examples:
  compare_results runs/20261201T1*-0123abcd4567 -- runs/20261202T1*-89abcdef0123
  compare_results base.json new.json
  compare_results --paired runs/a1 runs/a2 runs/a3 -- runs/b1 runs/b2 runs/b3
  compare_results --json comparison.json runs/old* -- runs/new* > comparison.md
  python plot/report.py runs/new1 --comparison comparison.json

Several runs a side are needed to tell a slower commit from an unlucky launch; let the sides alternate in time.
Result on stdout, errors one line on stderr. Exit code: 0 no regression, 1 a regression, 2 nothing was compared or the
input could not be read.)";

struct Options {
  std::vector<std::filesystem::path> base;
  std::vector<std::filesystem::path> fresh;
  results::CompareOptions compare;
  std::string format = "markdown";
  std::string json_file;
  std::vector<std::filesystem::path> history;
};

std::optional<Options> parse(std::vector<std::string> words) {
  Options options;
  CLI::App app("Compares the runs of two commits, benchmark by benchmark.", "compare_results");
  refuse_empty_words(app, words);
  // CLI11 takes "--" for the end of its options; here it also parts the sides.
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const bool parted = dashes != words.end();
  if (parted) {
    options.fresh.assign(dashes + 1, words.end());
    words.erase(dashes, words.end());
  }
  for (const std::filesystem::path& path : options.fresh) {
    if (!path.native().starts_with("--")) continue;
    throw Error("option " + path.string() + " stands behind --", "give options before the sides");
  }
  std::vector<std::string> base;
  std::string threshold = "3";
  app.footer(kFooter);
  app.add_option("base", base,
                 "runs of the commit to compare with, then --, then those of the new");
  app.add_flag("--paired", options.compare.paired,
               "run i of base and run i of new took turns on one machine: compare within pairs");
  app.add_option("--threshold", threshold, "percent of the time that do not matter (default 3)");
  app.add_flag("--differing-conditions", options.compare.differing,
               "compare although device, model, topology, build type and so on differ");
  std::vector<std::string> history;
  app.add_option("--history", history,
                 "run folder of any commit on this machine (repeat it): what 40 or more of one "
                 "commit differ by is luck, for comparisons of one run a side")
      ->allow_extra_args(false);
  app.add_option("--format", options.format, "markdown (default), csv or json");
  app.add_option("--json", options.json_file, "also write the JSON to this file");
  if (!parse_command_line(app, std::move(words))) return std::nullopt;
  options.base.assign(base.begin(), base.end());
  options.history.assign(history.begin(), history.end());
  if (!parted && options.base.size() == 2) {
    options.fresh = {options.base.back()};
    options.base.pop_back();
  }
  if (options.base.empty() || options.fresh.empty()) {
    throw Error("two sides are needed", "give BASE... -- NEW...; see compare_results --help");
  }
  options.compare.threshold = parse_double("--threshold", threshold) / 100;
  if (options.compare.threshold < 0) throw Error("--threshold is below 0", "give a percentage");
  if (options.format != "markdown" && options.format != "csv" && options.format != "json") {
    throw Error("--format " + options.format + " is not known", "give markdown, csv or json");
  }
  return options;
}

/// What tells the run at `path` from others: a table of a run folder alone is that run, too.
std::filesystem::path place_of_run(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::path place = std::filesystem::weakly_canonical(path, failed);
  const bool table = place.filename() == "results.csv" || place.filename() == "samples.csv";
  return table ? place.parent_path() : place;
}

/// A run counts once: given twice, its luck would look like two runs that agree.
std::set<std::filesystem::path> require_distinct(const std::vector<std::filesystem::path>& paths,
                                                 const char* side) {
  std::set<std::filesystem::path> seen;
  for (const std::filesystem::path& path : paths) {
    if (seen.insert(place_of_run(path)).second) continue;
    throw Error(std::string("is given twice on the side of ") + side,
                "give every run once: a run is one launch", {.file = path.string()});
  }
  return seen;
}

/// "… is given on both sides …" for every such run.
std::vector<std::string> runs_on_both_sides(const Options& options) {
  const std::set<std::filesystem::path> base = require_distinct(options.base, "base");
  require_distinct(options.fresh, "new");
  std::vector<std::string> notes;
  for (const std::filesystem::path& path : options.fresh) {
    if (!base.contains(place_of_run(path))) continue;
    notes.push_back(path.string() +
                    " is given on both sides: a run shows no change against itself");
  }
  return notes;
}

int run(int argc, char** argv) {
  const auto options = parse({argv + 1, argv + argc});
  if (!options) return kFine;
  const std::vector<std::string> on_both = runs_on_both_sides(*options);
  require_distinct(options->history, "--history");
  std::vector<results::MeasuredRun> base = results::read_runs(options->base);
  std::vector<results::MeasuredRun> fresh = results::read_runs(options->fresh);
  results::Comparison comparison = results::compare(
      std::move(base), std::move(fresh), options->compare, results::read_runs(options->history));
  comparison.notes.insert(comparison.notes.end(), on_both.begin(), on_both.end());
  if (options->format == "markdown") {
    std::cout << results::comparison_markdown(comparison);
  } else if (options->format == "csv") {
    std::cout << results::comparison_csv(comparison);
  } else {
    std::cout << results::comparison_json(comparison);
  }
  if (!options->json_file.empty()) {
    const std::string json = results::comparison_json(comparison);
    DurableFile file(options->json_file);
    file.write(std::as_bytes(std::span(json)));
    file.commit();
  }
  if (comparison.compared() == 0) {
    std::cout.flush();
    throw Error("no benchmark could be compared", "the result says why for each");
  }
  return comparison.regressions() > 0 ? kCheckFailed : kFine;
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  return stepscope::run_program("compare_results",
                                [&] { return stepscope::bench::run(argc, argv); });
}
