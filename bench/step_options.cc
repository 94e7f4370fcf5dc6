#include "bench/step_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/benchmark_flags.h"
#include "bench/option_values.h"
#include "core/command_line.h"
#include "core/error.h"
#include "core/program.h"
#include "kernels/thread_pool.h"
#include "results/schema.h"

namespace stepscope::bench {
namespace {

using topologies::Optimizer;
using topologies::StatePolicy;
using topologies::Topology;

constexpr const char* kFooter = R"(Examples:
  .venv/bin/torchrun --standalone --no-python --nproc-per-node 2 build/bin/optimizer_step --quick
  torchrun ... optimizer_step --model gpt2 --optimizer AdamW8bit,AdamW --dtype bf16
  torchrun ... optimizer_step --model my-model.safetensors --steps 500 --out runs/mine
  torchrun ... optimizer_step --topology fsdp1 --wrap whole-model --state-policy local,original
  torchrun ... optimizer_step --topology fsdp1 --policy-cost

Rank, world size and address come from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
bitsandbytes is measured by kernel_step --peers bitsandbytes (with --device cuda its CUDA library alone, which knows no
ranks) and by topologies/pytorch/optimizer_step.py (its optimizers on PyTorch's FSDP).
Google Benchmark's --benchmark_filter, --benchmark_repetitions, --benchmark_list_tests, --benchmark_format,
--benchmark_out and --benchmark_out_format are handed on; those that would let ranks lose step are refused.
A table goes to stdout, and the run folder's path as its last line; messages go to stderr.
Exit code: 0 measured and checked, 1 a case differs from its reference or breaks a contract, 2 could not run.)";

/// An option that only one topology reads is an error where that topology is not asked for.
void require_topology(const StepOptions& options, Topology topology, const std::string& option,
                      std::size_t given) {
  const auto& list = options.topology_list;
  if (given == 0 || std::find(list.begin(), list.end(), topology) != list.end()) return;
  const std::string name(topologies::topology_name(topology));
  throw Error(option + " is given without topology " + name, "add --topology " + name);
}

/// Throws Error where `kind` is none that the run folder's column knows.
void require_substitute(const std::string& kind) {
  std::vector<std::string> kinds;
  for (const results::Column& column : results::results_table().columns) {
    if (column.name == "substitute") kinds = column.values;
  }
  if (kind.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  throw Error("--substitute is \"" + kind + "\"", fmt::format("give {}", fmt::join(kinds, " or ")));
}

}  // namespace

std::optional<StepOptions> parse_step_options(int argc, const char* const* argv) {
  StepOptions options;
  std::vector<std::string> optimizer_names, topology_names, dtype_names;
  std::vector<std::string> state_policy_names;
  std::string device = "cpu";
  std::string timeout = "25";
  std::string rendezvous_timeout = "30";
  std::string baton_timeout = "300";
  std::string order = "first";

  CLI::App app("Measures the optimizer step of one model on all ranks of a job.", "optimizer_step");
  app.footer(kFooter);
  app.allow_extras();
  auto* model =
      app.add_option("--model", options.model,
                     "preset, .json list or .safetensors file (default gpt2; tiny with --quick)");
  app.add_option("--optimizer", optimizer_names, "AdamW8bit,Lion8bit,AdamW (default all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--topology", topology_names, "single,ddp,fsdp2,hsdp,fsdp1 (default fsdp2)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--dtype", dtype_names, "fp32,bf16,fp16 (default fp32,bf16)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option(
         "--state-policy", state_policy_names,
         "global,local,original: what decides between 8-bit and FP32 state, and where blocks "
         "start (default global)")
      ->delimiter(',')
      ->allow_extra_args(false);
  auto* wrap = app.add_option(
      "--wrap", options.wrap,
      "units of fsdp1: per-parameter, per-module (default), whole-model, or a .json list of units");
  std::string replicas, steps, warmup, trace, threads, min_8bit_size, learning_rate, weight_decay;
  app.add_option("--replicas", replicas, "copies that hsdp keeps; ranks = replicas x shards");
  app.add_option("--device", device, "cpu or cuda");
  app.add_option("--steps", steps, "timed steps (default 100; 20 with --quick)");
  app.add_option("--warmup", warmup, "steps before them (default 10; 3 with --quick)");
  app.add_option("--trace", trace,
                 "steps recorded after the timed ones, to judge the contracts (default 3)");
  app.add_option("--threads", threads, "threads a rank (default: cores / ranks of this host)");
  app.add_option("--min-8bit-size", min_8bit_size,
                 "parameters below this many elements keep FP32 state (default 4096)");
  app.add_option("--learning-rate", learning_rate, "default: the optimizer's own");
  app.add_option("--weight-decay", weight_decay, "default: the optimizer's own");
  app.add_flag("--quick", options.quick, "a short run: tiny model, 20 steps");
  app.add_flag("--policy-cost", options.policy_cost,
               "only tell what state policy original costs beside global: both take turns, step by "
               "step; no run folder");
  app.add_flag("--rows-only", options.rows_only,
               "print the rows alone, not what follows from them: bench.sh puts others below");
  app.add_option("--substitute", options.substitute,
                 "this job is instead of a larger one that was wanted: one-gpu (one rank alone) or "
                 "oversubscribed (ranks that share cores or GPUs); every row is marked with it");
  app.add_option("--out", options.out, "run folder to make (default runs/<utc>-<commit>)");
  app.add_option("--timeout", timeout, "seconds a rank waits for its peers in a step (default 25)");
  app.add_option("--rendezvous-timeout", rendezvous_timeout,
                 "seconds a rank waits for its peers to start (default 30)");
  auto* baton = app.add_option(
      "--baton", options.turns.baton.socket,
      "take turns with another build on this host: the socket through which the two speak");
  std::string turn_steps, turn_dropped;
  std::vector<CLI::Option*> of_turns = {
      app.add_option("--turn", order, "first (makes the socket; default) or second"),
      app.add_option("--turn-steps", turn_steps, "timed steps in a turn (default 10)"),
      app.add_option("--turn-dropped", turn_dropped,
                     "steps before them in every turn, as warm-up (default 2)"),
      app.add_option("--baton-timeout", baton_timeout,
                     "seconds to wait for the other build (default 300)")};
  if (!parse_command_line(app, argc, argv)) return std::nullopt;

  if (options.policy_cost) {
    // Everything that is about a run folder, and what would choose another comparison.
    if (!state_policy_names.empty() || !options.out.empty() || options.rows_only ||
        baton->count() > 0 || !trace.empty() || !app.remaining().empty()) {
      throw Error(
          "--policy-cost compares original with global, and writes no run folder",
          "leave --state-policy, --out, --rows-only, --trace, --baton and --benchmark_* out");
    }
    state_policy_names = {"original"};
    if (optimizer_names.empty()) optimizer_names = {"AdamW8bit", "Lion8bit"};
  }
  if (optimizer_names.empty()) optimizer_names = {"AdamW", "AdamW8bit", "Lion8bit"};
  if (topology_names.empty()) topology_names = {"fsdp2"};
  if (state_policy_names.empty()) state_policy_names = {"global"};
  if (dtype_names.empty()) dtype_names = {"fp32", "bf16"};
  options.optimizer_list = parse_list<Optimizer>(optimizer_names, topologies::parse_optimizer);
  options.topology_list = parse_list<Topology>(topology_names, topologies::parse_topology);
  options.dtype_list = parse_list<kernels::DType>(dtype_names, topologies::parse_dtype);
  options.state_policy_list =
      parse_list<StatePolicy>(state_policy_names, topologies::parse_state_policy);
  for (const Optimizer optimizer : options.optimizer_list) {
    if (options.policy_cost && !topologies::asks_8bit(optimizer)) {
      throw Error("--policy-cost: the state of " +
                      std::string(topologies::optimizer_name(optimizer)) +
                      " is FP32 and the same under every policy",
                  "give --optimizer AdamW8bit,Lion8bit");
    }
  }
  require_topology(options, Topology::fsdp1, "--wrap", wrap->count());
  require_topology(options, Topology::hsdp, "--replicas", replicas.empty() ? 0 : 1);
  for (const CLI::Option* option : of_turns) {
    if (option->count() > 0 && baton->count() == 0) {
      throw Error(option->get_name() + " is given without --baton", "add --baton SOCKET");
    }
  }
  if (order != "first" && order != "second") {
    throw Error("--turn is \"" + order + "\"", "give first or second");
  }
  options.turns.baton.first = order == "first";
  options.turns.timeout = seconds("--baton-timeout", baton_timeout);
  require_substitute(options.substitute);
  options.wrapping = topologies::load_wrapping(options.wrap);
  options.device = topologies::parse_device(device);
  options.timeouts.collective = seconds("--timeout", timeout);
  options.timeouts.rendezvous = seconds("--rendezvous-timeout", rendezvous_timeout);
  if (options.quick && model->count() == 0) options.model = "tiny";
  constexpr std::int64_t kMost = 10'000'000;
  options.steps = whole_number("--steps", steps, options.quick ? 20 : 100, 1, kMost);
  options.warmup_steps = whole_number("--warmup", warmup, options.quick ? 3 : 10, 0, kMost);
  options.turns.steps = whole_number("--turn-steps", turn_steps, 10, 1, kMost);
  options.turns.dropped = whole_number("--turn-dropped", turn_dropped, 2, 0, kMost);
  constexpr std::int64_t kMostTraced = 10'000;
  options.trace_steps = whole_number("--trace", trace, 3, 0, kMostTraced);
  options.threads = whole_number("--threads", threads, 0, 1, kernels::ThreadPool::kMaxThreads);
  options.replicas = whole_number("--replicas", replicas, 1, 1, kMost);
  options.min_8bit_size =
      whole_number("--min-8bit-size", min_8bit_size, topologies::kMin8bitSize, 0, kMost * kMost);
  options.learning_rate = rate("--learning-rate", learning_rate);
  options.weight_decay = rate("--weight-decay", weight_decay);
  options.benchmark_flags = screen_benchmark_flags(app.remaining());
  return options;
}

}  // namespace stepscope::bench
