#include "bench/train_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/option_values.h"
#include "core/command_line.h"
#include "core/error.h"
#include "core/program.h"
#include "kernels/thread_pool.h"
#include "topologies/device_runtime.h"

namespace stepscope::bench {
namespace {

using topologies::Optimizer;
using topologies::Topology;

constexpr const char* kFooter = R"(Examples:
  .venv/bin/torchrun --standalone --no-python --nproc-per-node 2 build/bin/train_step
  torchrun ... train_step --topology fsdp2,fsdp1,ddp --optimizer AdamW,AdamW8bit
  torchrun ... train_step --optimizer AdamW8bit --state-policy original --save state --save-every 20
  torchrun ... train_step --optimizer AdamW8bit --state-policy original --resume state

Trains a transformer over bytes on the text, every case from the same start. A step is timed as a whole: gathers,
forward and backward pass, reduction of the gradients, optimizer. Warm-up steps train like the others.
Rank, world size and address come from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
A table goes to stdout, and the run folder's path as its last line; messages go to stderr.
Exit code: 0 every loss was finite, the last ones clearly below the first, AdamW8bit's near FP32 AdamW's, and no
contract is broken; 1 not so; 2 could not run.)";

/// PyTorch's fully_shard on each block and on the whole: what FSDP1 needs told to do the same.
topologies::Wrapping units_as_wrapping(const TrainNetwork& network) {
  topologies::Wrapping wrapping{.policy = topologies::WrapPolicy::list};
  for (const auto& unit : network.units()) {
    std::vector<std::string> names;
    for (const std::size_t p : unit) names.push_back(network.model().parameters[p].name);
    wrapping.units.push_back(std::move(names));
  }
  return wrapping;
}

/// The network computes in host memory; its units and optimizers alone could be on a GPU.
void require_cpu(const std::string& device) {
  if (topologies::parse_device(device) == topologies::Device::cpu) return;
  throw Error("train_step has no forward and backward pass on a GPU",
              "leave --device out, train with topologies/pytorch/train_step.py --device cuda, or "
              "measure the optimizer's step alone with optimizer_step --device cuda");
}

void require_sense(const TrainOptions& options) {
  const std::size_t cases =
      options.optimizer_list.size() * options.topology_list.size() * options.dtype_list.size();
  if (cases > 1 && !(options.save.empty() && options.resume.empty())) {
    throw Error(
        "--save and --resume are of one case, and " + std::to_string(cases) + " are asked for",
        "give one --optimizer, one --topology and one --dtype");
  }
  if (options.save_every > 0 && options.save.empty()) {
    throw Error("--save-every is given without --save", "say where with --save FOLDER");
  }
  const auto& list = options.topology_list;
  if (options.replicas > 1 && std::find(list.begin(), list.end(), Topology::hsdp) == list.end()) {
    throw Error("--replicas is given without topology hsdp", "add --topology hsdp");
  }
  for (const kernels::DType dtype : options.dtype_list) {
    if (dtype == kernels::DType::fp16) {
      throw Error("fp16 gradients need a loss scale, which train_step does not have",
                  "give --dtype fp32 or bf16");
    }
  }
}

}  // namespace

std::string TrainCase::benchmark_name(const std::string& model) const {
  std::string name = "TrainStep";
  for (const std::string_view part :
       {topologies::subject_name(config.subject), topologies::optimizer_name(config.optimizer),
        topologies::topology_name(plan.topology),
        topologies::state_policy_name(config.state_policy), kernels::dtype_name(config.dtype),
        std::string_view(model)}) {
    name += '/';
    name += part;
  }
  return name;
}

std::vector<TrainCase> train_cases(const TrainOptions& options, const TrainNetwork& network,
                                   std::int64_t world_size) {
  std::vector<Optimizer> optimizers = options.optimizer_list;
  std::stable_partition(optimizers.begin(), optimizers.end(),
                        [](Optimizer optimizer) { return optimizer == Optimizer::AdamW; });
  std::vector<TrainCase> cases;
  for (const Topology topology : options.topology_list) {
    for (const kernels::DType dtype : options.dtype_list) {
      for (const Optimizer optimizer : optimizers) {
        TrainCase train_case;
        train_case.plan = {.topology = topology, .world_size = world_size};
        if (topology == Topology::hsdp) train_case.plan.replicas = options.replicas;
        if (topology == Topology::fsdp1) train_case.plan.wrapping = units_as_wrapping(network);
        topologies::StepConfig& config = train_case.config;
        config.subject = optimizer == Optimizer::AdamW ? topologies::Subject::torch
                                                       : topologies::Subject::native;
        config.optimizer = optimizer;
        config.state_policy = options.state_policy;
        config.dtype = dtype;
        config.hyperparameters = topologies::default_hyperparameters(optimizer);
        if (options.learning_rate) config.hyperparameters.learning_rate = *options.learning_rate;
        cases.push_back(std::move(train_case));
      }
    }
  }
  return cases;
}

std::optional<TrainOptions> parse_train_options(int argc, const char* const* argv) {
  TrainOptions options;
  std::vector<std::string> optimizer_names = {"AdamW", "AdamW8bit", "Lion8bit"};
  std::vector<std::string> topology_names = {"fsdp2"};
  std::vector<std::string> dtype_names = {"fp32"};
  std::string state_policy = "global";
  std::string device = "cpu";
  std::string timeout = "25";
  std::string rendezvous_timeout = "30";

  CLI::App app("Trains a small language model on all ranks of a job.", "train_step");
  app.footer(kFooter);
  app.add_option("--text", options.text,
                 "file to learn (default /usr/share/common-licenses/GPL-3)");
  app.add_option("--optimizer", optimizer_names, "AdamW8bit,Lion8bit,AdamW (default all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--topology", topology_names, "single,ddp,fsdp2,hsdp,fsdp1 (default fsdp2)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--dtype", dtype_names, "fp32,bf16 (default fp32)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--state-policy", state_policy, "global (default), local or original");
  app.add_option("--device", device, "cpu: the only one that the suite itself trains on");
  std::string width, layers, sequences, replicas, steps, warmup, trace, threads, learning_rate,
      save_every;
  app.add_option("--width", width, "elements of a byte's vector, a multiple of 16 (default 64)");
  app.add_option("--layers", layers, "transformer blocks (default 2)");
  app.add_option("--sequences", sequences, "pieces of 64 bytes a rank and step (default 8)");
  app.add_flag("--same-batches", options.same_batches,
               "show every rank the same bytes: the result must not depend on their number");
  app.add_option("--replicas", replicas, "copies that hsdp keeps; ranks = replicas x shards");
  app.add_option("--steps", steps, "timed steps (default 100)");
  app.add_option("--warmup", warmup, "steps before them (default 10)");
  app.add_option("--trace", trace,
                 "steps recorded after the timed ones, to judge the contracts (default 3)");
  app.add_option("--threads", threads, "threads a rank (default: cores / ranks of this host)");
  app.add_option("--learning-rate", learning_rate, "default: the optimizer's own");
  app.add_option("--save", options.save, "folder for parameters and state after the last step");
  app.add_option("--save-every", save_every, "save after every so many steps, too");
  app.add_option("--resume", options.resume, "folder to go on from");
  app.add_option("--out", options.out, "run folder to make (default runs/<utc>-<commit>)");
  app.add_option("--timeout", timeout, "seconds a rank waits for its peers in a step (default 25)");
  app.add_option("--rendezvous-timeout", rendezvous_timeout,
                 "seconds a rank waits for its peers to start (default 30)");
  if (!parse_command_line(app, argc, argv)) return std::nullopt;

  require_cpu(device);
  options.optimizer_list = parse_list<Optimizer>(optimizer_names, topologies::parse_optimizer);
  options.topology_list = parse_list<Topology>(topology_names, topologies::parse_topology);
  options.dtype_list = parse_list<kernels::DType>(dtype_names, topologies::parse_dtype);
  options.state_policy = topologies::parse_state_policy(state_policy);
  options.timeouts.collective = seconds("--timeout", timeout);
  options.timeouts.rendezvous = seconds("--rendezvous-timeout", rendezvous_timeout);
  constexpr std::int64_t kMost = 10'000'000;
  options.size.width = whole_number("--width", width, 64, kHeadWidth, 8192);
  options.size.layers = whole_number("--layers", layers, 2, 1, 1000);
  options.sequences = whole_number("--sequences", sequences, 8, 1, 100'000);
  options.replicas = whole_number("--replicas", replicas, 1, 1, kMost);
  options.steps = whole_number("--steps", steps, 100, 1, kMost);
  options.warmup_steps = whole_number("--warmup", warmup, 10, 0, kMost);
  constexpr std::int64_t kMostTraced = 1000;
  options.trace_steps = whole_number("--trace", trace, 3, 0, kMostTraced);
  options.threads = whole_number("--threads", threads, 0, 1, kernels::ThreadPool::kMaxThreads);
  options.save_every = whole_number("--save-every", save_every, 0, 1, kMost);
  options.learning_rate = rate("--learning-rate", learning_rate);
  require_sense(options);
  return options;
}

}  // namespace stepscope::bench
