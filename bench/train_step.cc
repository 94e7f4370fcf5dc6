// train_step: a small language model, trained on all ranks of a job. See docs/training.md and
// --help.

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/contract_report.h"
#include "bench/train_case_run.h"
#include "bench/train_options.h"
#include "bench/train_rows.h"
#include "bench/usable_cores.h"
#include "core/error.h"
#include "core/program.h"
#include "results/percentile.h"
#include "results/provenance.h"
#include "results/run_folder.h"
#include "topologies/sha256.h"
#include "topologies/torch_runtime.h"

namespace stepscope::bench {
namespace {

/// AdamW8bit's last loss may differ so much (nats a byte) from that of FP32 AdamW.
constexpr double kLossDistance = 0.1;

constexpr const char* kLayout = "{:<10} {:<8} {:<8} {:<5} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7} {}";

/// What must be equal on all ranks, a line a fact.
std::string agreement(const TrainOptions& options, const TrainNetwork& network,
                      const TrainText& text) {
  std::string facts = "build=" + version_line() + "\n";
  facts += "text=" + topologies::sha256(text.bytes()) + "\n";
  for (const TrainCase& train_case : train_cases(options, network, /*world_size=*/1)) {
    facts +=
        fmt::format("case={} lr {} replicas {}\n", train_case.benchmark_name(network.model().name),
                    train_case.config.hyperparameters.learning_rate, options.replicas);
  }
  facts += fmt::format("steps={} after {}, save every {}\n", options.steps, options.warmup_steps,
                       options.save_every);
  facts += fmt::format("trace={}\n", options.trace_steps);
  facts += fmt::format("sequences={}, the same on every rank: {}\n", options.sequences,
                       options.same_batches);
  facts += fmt::format("save={}\nresume={}\n", options.save, options.resume);
  return facts;
}

nlohmann::json manifest(const TrainSetting& setting, const std::vector<std::string>& command,
                        const std::vector<std::string>& hosts) {
  const TrainOptions& options = setting.options;
  nlohmann::json json = results::collect_provenance(command);
  json["program"] = "train_step";
  json["pytorch"] = topologies::torch_version();
  json["pytorch_cpu_capability"] = topologies::torch_cpu_capability();
  json["kernels_cpu_target"] = topologies::kernels_cpu_target();
  json["device"] = "cpu";
  json["device_description"] = setting.runtime.description();
  json["world_size"] = hosts.size();
  json["hosts_by_rank"] = hosts;
  json["threads_a_rank"] = setting.threads;
  json["quick"] = false;
  json["model"] = {{"name", setting.network.model().name},
                   {"parameters", setting.network.model().parameters.size()},
                   {"numel", setting.network.model().numel()}};
  json["text"] = {{"file", options.text},
                  {"bytes", setting.text.bytes().size()},
                  {"sha256", topologies::sha256(setting.text.bytes())}};
  json["sequences_a_rank"] = options.sequences;
  json["same_batches"] = options.same_batches;
  return json;
}

std::string destination(const TrainOptions& options) {
  if (!options.out.empty()) return options.out;
  return "runs/" +
         results::default_run_name(std::chrono::system_clock::now(), build_commit(), build_dirty());
}

/// The successful FP32 AdamW case that `result` is compared with; null for none.
const TrainResult* baseline_of(const TrainResult& result,
                               const std::vector<TrainResult>& completed) {
  for (const TrainResult& earlier : completed) {
    if (earlier.train_case.config.optimizer == topologies::Optimizer::AdamW &&
        earlier.train_case.plan.topology == result.train_case.plan.topology &&
        earlier.train_case.config.dtype == result.train_case.config.dtype &&
        earlier.failure.empty()) {
      return &earlier;
    }
  }
  return nullptr;
}

void judge_distance(TrainResult& result, const TrainResult* baseline) {
  if (baseline == nullptr || !result.failure.empty() ||
      result.train_case.config.optimizer != topologies::Optimizer::AdamW8bit) {
    return;
  }
  if (std::abs(result.last_loss - baseline->last_loss) > kLossDistance) {
    result.failure = fmt::format("the last loss, {:.4f}, is more than {} from FP32 AdamW's {:.4f}",
                                 result.last_loss, kLossDistance, baseline->last_loss);
  }
}

std::vector<std::optional<double>> savings_of(const TrainResult& result,
                                              const TrainResult* baseline) {
  std::vector<std::optional<double>> savings(result.ranks.size());
  if (baseline == nullptr) return savings;
  for (std::size_t rank = 0; rank < savings.size(); ++rank) {
    const auto part = ratio(result.ranks[rank].state_bytes, baseline->ranks[rank].state_bytes);
    if (part) savings[rank] = 1 - *part;
  }
  return savings;
}

nlohmann::json collectives_of(const TrainResult& result) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& record : result.collectives) {
    list.push_back({{"kind", topologies::collective_name(record.kind)}, {"numel", record.numel}});
  }
  return list;
}

void print_header() {
  fmt::print(kLayout, "optimizer", "topology", "policy", "dtype", "first", "last", "p50 ms",
             "p90 ms", "state KiB/r", "saved", "collectives a step\n");
}

void print_row(const TrainResult& result, const std::vector<std::optional<double>>& savings) {
  const auto& config = result.train_case.config;
  const auto ms = [&](int percent) {
    const auto ns = results::percentile(result.samples.step_ns, percent);
    return ns ? fmt::format("{:.2f}", static_cast<double>(*ns) / 1e6) : std::string("n/a");
  };
  std::int64_t state = 0;
  for (const RankFigures& rank : result.ranks) state = std::max(state, rank.state_bytes);
  const auto saved = savings.front();
  fmt::print(kLayout, topologies::optimizer_name(config.optimizer),
             topologies::topology_name(result.train_case.plan.topology),
             topologies::state_policy_name(config.state_policy), kernels::dtype_name(config.dtype),
             fmt::format("{:.4f}", result.untrained_loss), fmt::format("{:.4f}", result.last_loss),
             ms(50), ms(90), fmt::format("{:.1f}", static_cast<double>(state) / 1024),
             saved ? fmt::format("{:.1f}%", 100 * *saved) : "n/a",
             std::to_string(result.collectives.size()) + "\n");
  if (!result.failure.empty()) fmt::print("  failed: {}\n", result.failure);
  std::fflush(stdout);
}

int measure(const TrainOptions& options, const std::vector<std::string>& command) {
  const TrainText text = TrainText::read(options.text);
  const TrainNetwork network(options.size);
  const auto rendezvous = topologies::rendezvous_from_environment();
  const bool root = rendezvous.rank == 0;
  const auto runtime = topologies::open_device(topologies::Device::cpu, rendezvous.local_rank);
  const auto communicator = topologies::connect_gloo(rendezvous, options.timeouts);
  topologies::require_same(*communicator, agreement(options, network, text));
  const auto cases = train_cases(options, network, communicator->world_size());
  // Every plan is made before anything else, so that one that does not fit is refused at once.
  topologies::together(*communicator, [&] {
    for (const TrainCase& train_case : cases) {
      topologies::ShardPlan::make(network.model(), train_case.plan);
    }
  });
  TrainSetting setting{.options = options,
                       .network = network,
                       .text = text,
                       .communicator = *communicator,
                       .runtime = *runtime};
  setting.threads = options.threads > 0
                        ? options.threads
                        : std::max<std::int64_t>(1, usable_cores() / rendezvous.local_world_size);
  at::set_num_threads(static_cast<int>(setting.threads));
  const auto hosts = communicator->all_gather_text(results::host_name());
  std::unique_ptr<results::RunFolder> folder;
  topologies::together(*communicator, [&] {
    if (!root) return;
    folder = std::make_unique<results::RunFolder>(
        results::RunFolder::create(destination(options), manifest(setting, command, hosts)));
    folder->set("launcher", rendezvous.launcher);
    setting.run_folder = folder.get();
    print_header();
  });

  std::vector<TrainResult> completed;
  auto collectives = nlohmann::json::object();
  auto resumed = nlohmann::json::object();
  for (const TrainCase& train_case : cases) {
    TrainResult result = train(setting, train_case);
    const TrainResult* baseline = baseline_of(result, completed);
    judge_distance(result, baseline);
    topologies::together(*communicator, [&] {
      if (!root) return;
      const auto savings = savings_of(result, baseline);
      print_row(result, savings);
      write_train_rows(*folder, setting, result, savings);
      collectives[result.benchmark] = collectives_of(result);
      resumed[result.benchmark] = result.resumed_after;
      folder->set("collectives_a_step", collectives);
      folder->set("steps_before", resumed);
    });
    completed.push_back(std::move(result));
  }
  std::vector<CaseContracts> contracts;
  for (const TrainResult& result : completed) contracts.push_back(result.contracts);
  topologies::together(*communicator, [&] {
    if (!root) return;
    if (options.trace_steps > 0) {
      write_contracts(folder->working_path() / "contracts.json", contracts);
      print_contracts(contracts);
    }
    fmt::print("{}\n", folder->finish().string());
  });
  const bool failed =
      std::any_of(completed.begin(), completed.end(),
                  [](const TrainResult& result) { return !result.failure.empty(); });
  return failed || any_broken(contracts) ? kCheckFailed : kFine;
}

int run(int argc, char** argv) {
  const auto options = parse_train_options(argc, argv);
  if (!options) return kFine;
  return measure(*options, {argv, argv + argc});
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  return stepscope::run_program("train_step", [&] { return stepscope::bench::run(argc, argv); });
}
