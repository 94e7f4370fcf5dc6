// trace_check: whether the steps in a trace that anybody recorded keep the contracts. See --help.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "core/command_line.h"
#include "core/durable_file.h"
#include "core/error.h"
#include "core/parse.h"
#include "core/printable.h"
#include "core/program.h"
#include "tracer/align_ranks.h"
#include "tracer/contracts.h"
#include "tracer/trace_file.h"
#include "tracer/verdict_json.h"
#include "tracer/verdict_summary.h"

namespace stepscope::bench {
namespace {

using tracer::Contract;
using tracer::ContractSummary;
using tracer::Judgement;
using tracer::Status;

constexpr std::int64_t kMaxRank = std::int64_t{1} << 62;

struct Options {
  std::vector<std::string> files;
  std::vector<Contract> contracts;  ///< as named; none: all
  std::string plan, against, json;
  tracer::ReadOptions read;
  tracer::StepOptions steps;
};

struct ReadFile {
  std::string path;
  tracer::ReadReport report;
};

std::string footer() {
  std::string names;
  for (const Contract contract : tracer::all_contracts()) {
    names += (names.empty() ? "" : ", ") + std::string(tracer::contract_name(contract));
  }
  return "Contracts: " + names + R"(.

Examples:
  trace_check report.sqlite --plan plan.json
  trace_check rank0.sqlite rank1.sqlite --contract no-all-gather,no-host-device-copies
  trace_check sharded.sqlite --against plain.sqlite --contract no-extra-launches
  trace_check kineto.json.gz --step-range '^ProfilerStep' --json verdicts.json
plan.json: plan_state --plan-out plan.json; report.sqlite: nsys export --type sqlite.

The result goes to stdout, errors are one line on stderr. Exit code: 0 where no contract is broken, at least one was
verified, and each one named with --contract holds in every step; 1 where one is broken; 2 where nothing was verified,
a named contract was not verified everywhere, or a file cannot be read.)";
}

std::optional<Options> parse(int argc, const char* const* argv) {
  Options options;
  std::vector<std::string> contracts;
  std::string rank, pattern;
  CLI::App app("Judges the contracts of optimizer steps on recorded traces.", "trace_check");
  app.footer(footer());
  app.add_option("FILE", options.files, "nsys SQLite export, trace of stepscope, or Kineto JSON");
  app.add_option("--contract", contracts, "judge these alone, and require that they hold")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--plan", options.plan, "shard plan, for local-n and the declared collectives");
  app.add_option("--against", options.against,
                 "trace of the same steps on plain local tensors, for no-extra-launches");
  auto* step_range =
      app.add_option("--step-range", pattern,
                     "extended regular expression, found anywhere in the names of ranges: those "
                     "are the steps (default: stepscope's, else Optimizer.step#...)");
  app.add_flag("--salvage", options.read.salvage, "JSON: keep what is whole of a damaged file");
  auto* rank_option =
      app.add_option("--rank", rank, "the rank of the one FILE, where it does not say it");
  app.add_option("--json", options.json, "also write all verdicts to this file");
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  if (options.files.empty()) throw Error("no trace is given", "see trace_check --help");
  for (const std::string& name : contracts) {
    const Contract contract = tracer::parse_contract(name);
    if (std::find(options.contracts.begin(), options.contracts.end(), contract) ==
        options.contracts.end()) {
      options.contracts.push_back(contract);
    }
  }
  if (step_range->count() > 0) options.steps.pattern = pattern;
  if (rank_option->count() > 0) {
    if (options.files.size() > 1) {
      throw Error("--rank is given for several files", "check one file at a time");
    }
    options.read.rank = parse_int("--rank", rank, 0, kMaxRank);
  }
  return options;
}

std::string counted(std::int64_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

void print_file(const ReadFile& file) {
  fmt::print("{}: {}, {}", printable(file.path, 400), file.report.format,
             counted(file.report.events, "event"));
  if (file.report.skipped > 0) fmt::print(", {} of other kinds", file.report.skipped);
  if (file.report.lost_bytes > 0) {
    fmt::print(", {} bytes could not be read", file.report.lost_bytes);
  }
  fmt::print("\n");
  for (const std::string& note : file.report.notes) fmt::print("  {}\n", note);
}

void print_coverage(const tracer::Coverage& coverage) {
  fmt::print("{}: {}, {} with {}",
             coverage.rank ? fmt::format("rank {}", *coverage.rank) : "a rank that is not known",
             counted(coverage.steps, "step"), coverage.covered,
             coverage.device ? "kernels" : "operators");
  if (coverage.median_update_ns) {
    fmt::print(", updates take {}.{:03} us in the median step", *coverage.median_update_ns / 1'000,
               *coverage.median_update_ns % 1'000);
  }
  fmt::print("\n");
}

void print_summary(const std::vector<ContractSummary>& summary) {
  constexpr const char* kRow = "{:<22}  {:<10}  {:>9}  {:>9}  {:>10}\n";
  fmt::print("\n");
  fmt::print(kRow, "contract", "verdict", "ok", "broken", "unverified");
  for (const ContractSummary& line : summary) {
    fmt::print(kRow, tracer::contract_name(line.contract), tracer::status_name(line.status()),
               line.ok, line.broken, line.unverified);
  }
  fmt::print("\n");
  // The first verdict of each contract that does not hold says why.
  for (const ContractSummary& line : summary) {
    const tracer::Verdict* verdict =
        line.first_broken != nullptr ? line.first_broken : line.first_unverified;
    if (verdict == nullptr) continue;
    std::string start = std::string(tracer::contract_name(line.contract)) + ": ";
    for (const std::string& text : tracer::explained(*verdict)) {
      fmt::print("{}{}\n", start, text);
      start.clear();
    }
  }
}

/// Verdict by verdict: there may be a million.
void write_json(const std::string& path, const std::vector<ReadFile>& files,
                tracer::RankClock clock, const tracer::Trace& trace, const Judgement& judgement) {
  nlohmann::ordered_json json = {{"schema_version", 1},
                                 {"program", "trace_check"},
                                 {"version", version_line()},
                                 {"files", nlohmann::json::array()},
                                 {"clock", tracer::rank_clock_text(clock)},
                                 {"status", tracer::status_name(tracer::worst(judgement.verdicts))},
                                 {"health", tracer::health_json(trace.health())},
                                 {"coverage", nlohmann::json::array()}};
  for (const ReadFile& file : files) {
    json["files"].push_back({{"name", file.path},
                             {"format", file.report.format},
                             {"events", file.report.events},
                             {"skipped", file.report.skipped},
                             {"lost_bytes", file.report.lost_bytes},
                             {"notes", file.report.notes}});
  }
  for (const auto& coverage : judgement.coverage) {
    json["coverage"].push_back(tracer::coverage_json(coverage));
  }
  DurableFile out(path);
  const auto write = [&](const std::string& text) { out.write(std::as_bytes(std::span(text))); };
  const std::string head = tracer::one_line(json);
  write(head.substr(0, head.size() - 1) + ",\n\"verdicts\": ");
  constexpr std::size_t kAtOnce = 10'000;
  const std::span<const tracer::Verdict> all(judgement.verdicts);
  write("[");
  for (std::size_t i = 0; i < all.size(); i += kAtOnce) {
    std::ostringstream piece;
    tracer::write_verdicts(piece, all.subspan(i, std::min(kAtOnce, all.size() - i)));
    const std::string text = piece.str();
    write((i == 0 ? "" : ",") + text.substr(1, text.size() - 2));
  }
  write("]}\n");
  out.commit();
}

std::vector<ReadFile> read(const Options& options, tracer::Trace& trace) {
  std::vector<ReadFile> files;
  for (const std::string& path : options.files) {
    files.push_back({path, tracer::read_trace_file(path, trace, options.read)});
  }
  return files;
}

/// What the verdicts come to: see --help.
int exit_code(const Options& options, const std::vector<ContractSummary>& summary) {
  bool any_ok = false;
  for (const ContractSummary& line : summary) {
    if (line.status() == Status::broken) return kCheckFailed;
    any_ok = any_ok || line.ok > 0;
  }
  for (const Contract named : options.contracts) {
    const auto line = std::find_if(summary.begin(), summary.end(), [&](const auto& candidate) {
      return candidate.contract == named;
    });
    if (line == summary.end() || line->status() != Status::ok) {
      throw Error(std::string(tracer::contract_name(named)) + " was not verified in every step",
                  "the table says why");
    }
  }
  if (!any_ok) throw Error("no contract was verified", "the table says why");
  return kFine;
}

int run(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) return kFine;
  std::optional<tracer::ExpectedPlan> plan;
  if (!options->plan.empty()) plan.emplace(tracer::read_plan_file(options->plan));
  std::optional<tracer::Trace> against;
  if (!options->against.empty()) {
    against.emplace();
    tracer::read_trace_file(options->against, *against, {.salvage = options->read.salvage});
    tracer::align_ranks(*against);
    against->finish();
  }
  tracer::Trace trace;
  const std::vector<ReadFile> files = read(*options, trace);
  const tracer::RankClock clock = tracer::align_ranks(trace);
  trace.finish();
  tracer::ContractOptions contract_options;
  contract_options.contracts = options->contracts;
  contract_options.plan = plan ? &*plan : nullptr;
  contract_options.against = against ? &*against : nullptr;
  contract_options.steps = options->steps;
  const Judgement judgement = tracer::judge(trace, contract_options);

  for (const ReadFile& file : files) print_file(file);
  if (trace.processes().size() > 1) {
    fmt::print("ranks: {}\n", tracer::rank_clock_text(clock));
  }
  if (trace.health().total() > 0) {
    fmt::print("{} left out: impossible times or there twice\n",
               counted(trace.health().total(), "record"));
  }
  for (const auto& coverage : judgement.coverage) print_coverage(coverage);
  const auto summary = tracer::summarize(judgement.verdicts);
  print_summary(summary);
  if (!options->json.empty()) write_json(options->json, files, clock, trace, judgement);
  return exit_code(*options, summary);
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  return stepscope::run_program("trace_check", [&] { return stepscope::bench::run(argc, argv); });
}
