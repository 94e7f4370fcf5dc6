// optimizer_step: the step of a sharded optimizer, measured on all ranks of a job. See docs/ and
// --help.

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/benchmark_file.h"
#include "bench/benchmark_flags.h"
#include "bench/contract_report.h"
#include "bench/memory_guard.h"
#include "bench/policy_cost.h"
#include "bench/step_fixture.h"
#include "bench/step_options.h"
#include "bench/step_report.h"
#include "bench/step_session.h"
#include "bench/straggler_report.h"
#include "bench/turns.h"
#include "bench/usable_cores.h"
#include "core/error.h"
#include "core/program.h"
#include "results/provenance.h"
#include "results/run_folder.h"
#include "topologies/connect.h"
#include "topologies/device_runtime.h"
#include "topologies/load_model.h"
#include "topologies/network_interface.h"
#include "topologies/torch_runtime.h"

namespace stepscope::bench {
namespace {

using topologies::Model;

/// Takes Google Benchmark's output on ranks other than 0.
class SilentReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& /*runs*/) override {}
};

/// `value` in so many digits that different numbers look different.
std::string exact(double value) { return nlohmann::json(value).dump(); }

/// Google Benchmark's flags that decide what is run, a line each.
std::string agreed_flags(const StepOptions& options) {
  std::string text;
  for (const std::string& flag : options.benchmark_flags) {
    if (!flag.starts_with("--benchmark_out")) text += "flag=" + flag + "\n";
  }
  return text;
}

/// What must be equal on all ranks, a line a fact.
std::string agreement(const StepOptions& options, const Model& model) {
  std::string text = "build=" + version_line() + "\nmodel=" + model.name + "\n";
  for (const auto& parameter : model.parameters) {
    text += "parameter=" + parameter.name;
    for (const std::int64_t extent : parameter.shape) text += " " + std::to_string(extent);
    if (!parameter.tied_to.empty()) text += " tied to " + parameter.tied_to;
    if (!parameter.requires_grad) text += " frozen";
    text += parameter.has_gradient ? "\n" : " without gradient\n";
  }
  for (const StepCase& step_case : step_cases(options)) {
    const auto& h = step_case.config.hyperparameters;
    text += "case=" + step_case.benchmark_name(model.name) + " lr " + exact(h.learning_rate) +
            " wd " + exact(h.weight_decay) + " min-8bit-size " +
            std::to_string(step_case.config.min_8bit_size) + "\n";
  }
  for (const auto& unit : options.wrapping.units) {
    text += "unit=";
    for (const std::string& name : unit) text.append(name).push_back(' ');
    text += '\n';
  }
  text += "wrap=" + options.wrap + "\n";
  text += "policy-cost=" + std::to_string(static_cast<int>(options.policy_cost)) + "\n";
  text += "replicas=" + std::to_string(options.replicas) + "\n";
  text += "steps=" + std::to_string(options.steps) + "\n";
  text += "warmup=" + std::to_string(options.warmup_steps) + "\n";
  text += "trace=" + std::to_string(options.trace_steps) + "\n";
  text += "substitute=" + options.substitute + "\n";
  text += "device=" + std::string(topologies::device_name(options.device)) + "\n";
  text += "baton=" + options.turns.baton.socket + "\n";
  text += "turn-steps=" + std::to_string(options.turns.steps) + "\n";
  text += "turn-dropped=" + std::to_string(options.turns.dropped) + "\n";
  text += agreed_flags(options);
  return text;
}

/// What must be equal in two builds that take turns, a line a fact: as many turns, and the same
/// work in each.
std::string measured(const StepOptions& options, const Model& model, std::int64_t world_size) {
  // The number is that of the order in which turns are begun and ended.
  std::string text = "turns=1\nmodel=" + model.name + " " + std::to_string(model.numel()) + "\n";
  for (const StepCase& step_case : step_cases(options)) {
    text += "case=" + step_case.benchmark_name(model.name) + "\n";
  }
  text += "world-size=" + std::to_string(world_size) + "\n";
  text += "steps=" + std::to_string(options.steps) + "\n";
  text += "turn-steps=" + std::to_string(options.turns.steps) + "\n";
  text += "turn-dropped=" + std::to_string(options.turns.dropped) + "\n";
  text += agreed_flags(options);
  return text;
}

/// Google Benchmark's command line. Its flags also read the environment (BENCHMARK_FILTER and so
/// on), which may differ between ranks; every flag that matters is therefore given.
void initialize_benchmark(const StepOptions& options, bool root) {
  // Google Benchmark keeps the pointer to the first word, and reads it when it writes a file.
  static char program[] = "optimizer_step";
  std::vector<std::string> words = {"--benchmark_filter=",
                                    "--benchmark_repetitions=1",
                                    "--benchmark_out=",
                                    "--benchmark_format=console",
                                    "--benchmark_out_format=json",
                                    "--benchmark_list_tests=false",
                                    "--benchmark_enable_random_interleaving=false",
                                    "--benchmark_min_warmup_time=0"};
  for (const std::string& flag : options.benchmark_flags) {
    if (root || !flag.starts_with("--benchmark_out")) words.push_back(flag);
  }
  std::vector<char*> arguments = {program};
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (count > 1) throw Error(std::string("bad benchmark flag ") + arguments[1]);
}

nlohmann::json manifest(const StepOptions& options, const Model& model,
                        const topologies::DeviceRuntime& runtime,
                        const std::vector<std::string>& command,
                        const std::vector<std::string>& hosts, std::int64_t threads,
                        const Turns& turns) {
  nlohmann::json json = results::collect_provenance(command);
  json["program"] = "optimizer_step";
  json["pytorch"] = topologies::torch_version();
  json["pytorch_cpu_capability"] = topologies::torch_cpu_capability();
  json["kernels_cpu_target"] = topologies::kernels_cpu_target();
  json["device"] = topologies::device_name(options.device);
  json["device_description"] = runtime.description();
  json["world_size"] = hosts.size();
  json["hosts_by_rank"] = hosts;
  json["threads_a_rank"] = threads;
  json["quick"] = options.quick;
  if (!options.substitute.empty()) json["substitute"] = options.substitute;
  json["min_8bit_size"] = options.min_8bit_size;
  json["weight_decay"] = options.weight_decay ? nlohmann::json(*options.weight_decay)
                                              : nlohmann::json(nullptr);  // the optimizers' own
  if (turns.taken()) {
    json["turns"] = {{"pair", turns.pair()},
                     {"order", options.turns.baton.first ? "first" : "second"},
                     {"timed_steps", options.turns.steps},
                     {"dropped_steps", options.turns.dropped}};
  }
  json["model"] = {{"name", model.name},
                   {"given", options.model},
                   {"parameters", model.parameters.size()},
                   {"numel", model.numel()},
                   {"skipped_tensors", model.skipped}};
  return json;
}

/// Throws Error where a job of one rank was promised and there are more.
void require_size(const std::string& substitute, std::int64_t world_size) {
  if (substitute != "one-gpu" || world_size == 1) return;
  throw Error("--substitute one-gpu is one rank, and this job has " + std::to_string(world_size),
              "start one rank, or leave --substitute out");
}

std::string destination(const StepOptions& options) {
  if (!options.out.empty()) return options.out;
  return "runs/" +
         results::default_run_name(std::chrono::system_clock::now(), build_commit(), build_dirty());
}

void announce(const Model& model) {
  if (model.skipped.empty()) return;
  std::fprintf(
      stderr, "optimizer_step: %zu tensor(s) of %s are not floating-point and are left out: %s%s\n",
      model.skipped.size(), model.name.c_str(), model.skipped.front().c_str(),
      model.skipped.size() > 1 ? ", ..." : "");
}

int measure(const StepOptions& options, const std::vector<std::string>& command) {
  const bool only_list = has_flag(options.benchmark_flags, "benchmark_list_tests");
  Model model = topologies::load_model(options.model);
  // Every case says its own data type; what the file says must not make units look mixed.
  for (auto& parameter : model.parameters) parameter.dtype = options.dtype_list.front();
  const auto cases = step_cases(options);
  std::vector<std::string> names;
  for (const StepCase& step_case : cases) {
    names.push_back(step_case.benchmark_name(model.name) +
                    "/iterations:" + std::to_string(options.steps) + "/manual_time");
  }
  require_match(options.benchmark_flags, names);
  const auto rendezvous = topologies::rendezvous_from_environment();
  const bool root = rendezvous.rank == 0;
  // Before the GPU is opened, which takes its time.
  if (options.device == topologies::Device::cuda) {
    topologies::require_nccl_interface(std::getenv("NCCL_SOCKET_IFNAME"));
  }
  require_size(options.substitute, rendezvous.world_size);
  const std::int64_t sharing =
      options.substitute == "oversubscribed" ? rendezvous.local_world_size : 0;
  const auto runtime = topologies::open_device(options.device, rendezvous.local_rank, sharing);
  const auto communicator = topologies::connect(options.device, rendezvous, options.timeouts);
  topologies::require_same(*communicator, agreement(options, model));
  // Plans are made here once, so that an unfit model is refused before anything else happens.
  topologies::together(*communicator, [&] {
    for (const StepCase& step_case : cases) {
      topologies::ShardPlan::make(model,
                                  step_case.plan_options(options, communicator->world_size()));
    }
  });
  Turns turns(*communicator, options.turns, options.timeouts.collective);
  turns.meet(measured(options, model, communicator->world_size()));
  require_memory(*communicator, *runtime, model, options, cases, rendezvous.local_world_size);
  // Both builds have looked at the free memory before either takes of it.
  turns.synchronize();

  StepSession session{.options = options,
                      .model = model,
                      .communicator = *communicator,
                      .runtime = *runtime,
                      .turns = turns};
  session.threads = options.threads > 0
                        ? options.threads
                        : std::max<std::int64_t>(1, usable_cores() / rendezvous.local_world_size);
  if (options.policy_cost) {
    measure_policy_costs(options, model, *communicator, *runtime, session.threads);
    return kFine;
  }
  const auto hosts = communicator->all_gather_text(results::host_name());
  std::unique_ptr<results::RunFolder> folder;
  topologies::together(*communicator, [&] {
    if (!root || only_list) return;
    announce(model);
    folder = std::make_unique<results::RunFolder>(results::RunFolder::create(
        destination(options),
        manifest(options, model, *runtime, command, hosts, session.threads, turns)));
    folder->set("launcher", rendezvous.launcher);
    session.run_folder = folder.get();
  });

  initialize_benchmark(options, root);
  register_step_benchmarks(session);
  std::unique_ptr<benchmark::BenchmarkReporter> reporter;
  if (!root) {
    reporter = std::make_unique<SilentReporter>();
  } else if (!has_flag(options.benchmark_flags, "benchmark_format") && !only_list) {
    reporter = std::make_unique<StepReporter>(session);
  }
  BenchmarkFile file(root ? options.benchmark_flags : std::vector<std::string>());
  benchmark::RunSpecifiedBenchmarks(reporter.get(), file.reporter());
  if (only_list) return kFine;
  if (session.completed.empty()) {
    throw Error("no case was measured",
                "check --benchmark_filter; --benchmark_list_tests lists the names");
  }
  turns.begin();
  const bool tables = !options.rows_only && !has_flag(options.benchmark_flags, "benchmark_format");
  topologies::together(*communicator, [&] {
    if (root && tables) print_stragglers(session.completed);
  });
  std::vector<CaseContracts> contracts;
  for (const CaseResult& result : session.completed) contracts.push_back(result.contracts);
  topologies::together(*communicator, [&] {
    if (!root || options.trace_steps == 0) return;
    write_contracts(folder->working_path() / "contracts.json", contracts);
    if (tables) print_contracts(contracts);
    if (const std::string why = why_unrecorded(contracts); !why.empty()) {
      std::fprintf(stderr, "optimizer_step: contracts stay unverified: %s\n", why.c_str());
    }
  });
  topologies::together(*communicator, [&] {
    file.require_written();
    if (root) std::printf("%s\n", folder->finish().c_str());
  });
  turns.finish();
  const bool failed = std::any_of(session.completed.begin(), session.completed.end(),
                                  [](const CaseResult& result) { return !result.failure.empty(); });
  return failed || any_broken(contracts) ? kCheckFailed : kFine;
}

/// A lone rank's failure before the ranks have met is reported by that rank alone; afterwards every
/// rank fails with the same Error, and rank 0 speaks for all.
int run(int argc, char** argv) {
  const auto options = parse_step_options(argc, argv);
  if (!options) return kFine;
  return measure(*options, {argv, argv + argc});
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  return stepscope::run_program("optimizer_step",
                                [&] { return stepscope::bench::run(argc, argv); });
}
