// plan_state: what every rank of a job will hold and send, for any model, topology and world size,
// before anything is allocated. See --help.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/expected_steps.h"
#include "core/command_line.h"
#include "core/error.h"
#include "core/parse.h"
#include "core/printable.h"
#include "core/program.h"
#include "topologies/collective_model.h"
#include "topologies/load_model.h"
#include "topologies/plan_summary.h"
#include "topologies/unit_traffic.h"

namespace stepscope::bench {
namespace {

using topologies::CollectiveKind;
using topologies::Model;
using topologies::PlanColumn;
using topologies::PlanExtent;
using topologies::PlannedBytes;
using topologies::PlanSummary;
using topologies::ShardPlan;
using topologies::Topology;

constexpr std::int64_t kMaxRanks = std::int64_t{1} << 62;
constexpr std::int64_t kMaxLatencyNs = 1'000'000'000'000;          ///< 1000 s
constexpr std::int64_t kMaxBytesPerS = 1'000'000'000'000'000'000;  ///< 1 EB/s
constexpr std::int64_t kMaxPlanTensors = 1'000'000;                ///< of all ranks in a plan file

struct Options {
  std::string model = "gpt2";
  bool names_model = false;  ///< whether the user does
  topologies::PlanOptions plan;
  topologies::StateOptions state;
  std::string wrap;                              ///< as given; empty: not fsdp1
  std::optional<topologies::LinkModel> predict;  ///< none: times are not asked for
  bool ranks = false;
  bool json = false;
  std::string plan_out;                  ///< empty: none is written
  std::vector<std::int64_t> plan_ranks;  ///< in it; none: all
};

std::string footer() {
  std::string text = R"(Examples:
  plan_state --model gpt2 --world-size 8
  plan_state --model llama-3.1-405b --topology fsdp1 --wrap per-module --world-size 16384 --dtype bf16
  plan_state --model my-model.json --topology hsdp --replicas 4 --world-size 64 --state-policy original --ranks
  plan_state --model tiny --topology fsdp1 --wrap units.json --world-size 4 --json
  plan_state --model llama-3.1-405b --world-size 16384 --dtype bf16 --predict --latency-ns 5000
  plan_state --model gpt2 --world-size 8 --plan-out plan.json && trace_check report.sqlite --plan plan.json
  units.json: [["transformer.wte", "transformer.wpe", "lm_head"], ["transformer.h.0", "transformer.h.1"], ...]

Figures of a rank:
)";
  for (const PlanColumn& column : topologies::plan_columns()) {
    text += fmt::format("  {:<22}{}\n", column.name, column.meaning);
  }
  text += R"(imbalance is maximum / mean over the ranks.

Collectives of a training step, the same on every rank; bytes are those that a rank hands in:
  all_gather            parameters of a unit, over the shards: the root's once, every other unit's twice
  reduce_scatter        gradients of a unit, over the shards
  all_reduce            gradients, over the replicas: of a unit (hsdp), of a bucket (ddp)
Units are fsdp1's; under fsdp2 and hsdp each numbered module ("layers.7"), and the root, which is the rest.

--predict adds what they would take on paper, by a ring and by a tree: a message of b bytes takes the latency and b over the
bandwidth, calls come one after another (topologies/collective_model.h). Predicted, never measured.

State policies: local: threshold and blocks on what the rank is handed; global: threshold on the whole parameter
(fsdp1: unit), blocks from the start of the shard; original: threshold and blocks on the original parameter.
The result goes to stdout, errors are one line on stderr. Exit code: 0 fine, 2 could not run.)";
  return text;
}

std::optional<Options> parse(int argc, const char* const* argv) {
  Options options;
  std::string topology = "fsdp2";
  std::string wrap = "per-module";
  std::string optimizer = "AdamW8bit";
  std::string policy = "global";
  std::string dtype;
  // As text: CLI11 takes 2^63 for 2^63 - 1 and says nothing.
  std::string world_size = "1";
  std::string replicas = "1";
  std::string min_8bit_size = std::to_string(topologies::kMin8bitSize);
  std::vector<std::string> plan_ranks;
  topologies::LinkModel link;
  std::string latency_ns = std::to_string(link.latency_ns);
  std::string bytes_per_s = std::to_string(link.bytes_per_s);
  bool predict = false;
  CLI::App app("Plans what every rank of a job will hold, without allocating it.", "plan_state");
  app.footer(footer());
  auto* model_option = app.add_option("--model", options.model,
                                      "preset, .json list or .safetensors file (default gpt2)");
  app.add_option("--topology", topology, "single, ddp, fsdp2, hsdp or fsdp1 (default fsdp2)");
  auto* wrap_option = app.add_option(
      "--wrap", wrap,
      "units of fsdp1: per-parameter, per-module (default), whole-model, or a .json list of units");
  auto* replicas_option = app.add_option(
      "--replicas", replicas, "copies that hsdp keeps (default 1); world size = replicas x shards");
  app.add_option("--world-size", world_size, "ranks (default 1)");
  app.add_option("--optimizer", optimizer, "AdamW8bit (default), Lion8bit or AdamW");
  app.add_option("--state-policy", policy, "local, global (default) or original");
  app.add_option("--dtype", dtype, "fp32, bf16 or fp16 for all parameters (default: the model's)");
  app.add_option("--min-8bit-size", min_8bit_size,
                 "below this many elements state is FP32 (default 4096)");
  app.add_flag("--predict", predict, "also predicted times of a training step's collectives");
  auto* latency_option =
      app.add_option("--latency-ns", latency_ns, "of a message, for --predict (default 20000)");
  auto* bandwidth_option =
      app.add_option("--bytes-per-s", bytes_per_s,
                     "that a rank sends, for --predict (default 50000000000: 400 Gbit/s)");
  app.add_flag("--ranks", options.ranks, "also a row for every rank");
  app.add_flag("--json", options.json, "JSON instead of a table");
  app.add_option("--plan-out", options.plan_out,
                 "also write the n of every rank's step to this file, for trace_check --plan");
  auto* plan_ranks_option =
      app.add_option("--plan-ranks", plan_ranks, "ranks in that file, as 0,1,17 (default: all)")
          ->delimiter(',')
          ->allow_extra_args(false);
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  options.names_model = model_option->count() > 0;
  options.plan.topology = topologies::parse_topology(topology);
  options.plan.world_size = parse_int("--world-size", world_size, 1, kMaxRanks);
  options.plan.replicas = parse_int("--replicas", replicas, 1, kMaxRanks);
  link.latency_ns = parse_int("--latency-ns", latency_ns, 0, kMaxLatencyNs);
  link.bytes_per_s = parse_int("--bytes-per-s", bytes_per_s, 1, kMaxBytesPerS);
  if (predict) {
    options.predict = link;
  } else if (latency_option->count() + bandwidth_option->count() > 0) {
    throw Error("--latency-ns or --bytes-per-s is given without --predict", "add --predict");
  }
  if (plan_ranks_option->count() > 0 && options.plan_out.empty()) {
    throw Error("--plan-ranks is given without --plan-out", "name the file to write");
  }
  for (const std::string& rank : plan_ranks) {
    options.plan_ranks.push_back(parse_int("--plan-ranks", rank, 0, options.plan.world_size - 1));
  }
  options.state.min_8bit_size =
      parse_int("--min-8bit-size", min_8bit_size, 0, topologies::kMaxModelNumel);
  options.state.optimizer = topologies::parse_optimizer(optimizer);
  options.state.policy = topologies::parse_state_policy(policy);
  if (!dtype.empty()) options.state.dtype = topologies::parse_dtype(dtype);
  if (options.plan.topology == Topology::fsdp1) {
    options.wrap = wrap;
    options.plan.wrapping = topologies::load_wrapping(wrap);
  } else if (wrap_option->count() > 0) {
    throw Error("topology " + topology + " has no units to wrap", "leave --wrap out, or use fsdp1");
  }
  if (options.plan.topology != Topology::hsdp && replicas_option->count() > 0) {
    throw Error("topology " + topology + " has no replicas to choose",
                "leave --replicas out, or use hsdp");
  }
  return options;
}

/// Where a border of any rank cuts a block, the ranks exchange its gradients once a step.
int extra_collectives(const std::vector<PlanExtent>& extents) {
  const auto& columns = topologies::plan_columns();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].name == "cut_blocks") return extents[i].total > 0 ? 1 : 0;
  }
  throw Error("a plan without a count of cut blocks");
}

struct NamedTraffic {
  CollectiveKind kind;
  const topologies::CollectiveTraffic& traffic;

  std::string name() const { return std::string(topologies::collective_name(kind)); }
};

std::vector<NamedTraffic> by_name(const topologies::UnitTraffic& traffic) {
  return {{CollectiveKind::all_gather, traffic.all_gather},
          {CollectiveKind::reduce_scatter, traffic.reduce_scatter},
          {CollectiveKind::all_reduce, traffic.all_reduce}};
}

struct Predicted {
  std::string name;  ///< of the collective, or "sum"
  std::int64_t ring_ns = 0;
  std::int64_t tree_ns = 0;
};

/// A line a collective, and their sum. Throws Error where a time does not fit in 64 bits.
std::vector<Predicted> predict(const topologies::UnitTraffic& traffic,
                               const topologies::LinkModel& link) {
  std::vector<Predicted> lines;
  Predicted sum{.name = "sum"};
  for (const NamedTraffic& one : by_name(traffic)) {
    const auto time = [&](topologies::Algorithm algorithm, std::int64_t& total) {
      const auto ns = topologies::predicted_ns(one.kind, algorithm, link, one.traffic);
      if (__builtin_add_overflow(total, ns, &total)) {
        throw Error("the predicted time of a step does not fit in 64 bits of ns",
                    "ask for fewer ranks, or a faster link");
      }
      return ns;
    };
    lines.push_back({.name = one.name(),
                     .ring_ns = time(topologies::Algorithm::ring, sum.ring_ns),
                     .tree_ns = time(topologies::Algorithm::tree, sum.tree_ns)});
  }
  lines.push_back(sum);
  return lines;
}

/// What a training step moves, and, where it was asked for, the predicted times.
struct PlannedStep {
  topologies::UnitTraffic traffic;
  std::vector<Predicted> predicted;
};

void print_prediction(const std::vector<Predicted>& lines, const topologies::LinkModel& link) {
  const auto milliseconds = [](std::int64_t ns) {
    return fmt::format("{}.{:06}", ns / 1'000'000, ns % 1'000'000);
  };
  std::size_t width = 7;
  for (const std::int64_t longest : {lines.back().ring_ns, lines.back().tree_ns}) {
    width = std::max(width, milliseconds(longest).size());
  }
  fmt::print("\n{:<20}  {:>{}}  {:>{}}\n", "predicted", "ring ms", width, "tree ms", width);
  for (const Predicted& line : lines) {
    fmt::print("{:<20}  {:>{}}  {:>{}}\n", line.name, milliseconds(line.ring_ns), width,
               milliseconds(line.tree_ns), width);
  }
  fmt::print(
      "Predicted, not measured: {} ns a message, {} bytes/s a rank, one call after another.\n",
      link.latency_ns, link.bytes_per_s);
}

void print_traffic(const topologies::UnitTraffic& traffic) {
  std::size_t width = 5;
  for (const auto& [kind, one] : by_name(traffic)) {
    width = std::max(width, std::to_string(one.bytes).size());
  }
  fmt::print("\n{:<20}  {:>12}  {:>9}  {:>{}}\n", "a training step", "among ranks", "calls",
             "bytes", width);
  for (const NamedTraffic& line : by_name(traffic)) {
    fmt::print("{:<20}  {:>12}  {:>9}  {:>{}}\n", line.name(), line.traffic.ranks,
               line.traffic.calls, line.traffic.bytes, width);
  }
}

void print_table(const Options& options, const Model& model, const ShardPlan& plan,
                 const PlanSummary& summary, const PlannedStep& step) {
  const auto& columns = topologies::plan_columns();
  const std::vector<PlanExtent> extents = summary.extents();
  std::string topology(topologies::topology_name(plan.topology()));
  if (plan.topology() == Topology::fsdp1) {
    topology += fmt::format(" ({}, {} unit{})", options.wrap, plan.unit_count(),
                            plan.unit_count() == 1 ? "" : "s");
  } else if (plan.topology() == Topology::hsdp) {
    topology += fmt::format(" ({} replicas x {} shards)", plan.replicas(), plan.shards());
  }
  fmt::print("{}: {} parameters in {} tensors, {} ranks, {}\n", model.name, model.numel(),
             model.parameters.size(), plan.world_size(), topology);
  fmt::print("{}, state policy {}, {}, extra collectives a step: {}\n\n",
             topologies::optimizer_name(options.state.optimizer),
             topologies::state_policy_name(options.state.policy),
             options.state.dtype ? kernels::dtype_name(*options.state.dtype) : "the model's dtypes",
             extra_collectives(extents));
  std::size_t width = 7;
  for (const PlanExtent& extent : extents) {
    width = std::max(width, std::to_string(extent.total).size());
  }
  fmt::print("{:<20}  {:>{}}  {:>{}}  {:>{}}  {:>9}\n", "a rank", "min", width, "max", width,
             "total", width, "imbalance");
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const PlanExtent& extent = extents[i];
    fmt::print("{:<20}  {:>{}}  {:>{}}  {:>{}}  {:>9.4g}\n", columns[i].name, extent.min, width,
               extent.max, width, extent.total, width, extent.imbalance);
  }
  print_traffic(step.traffic);
  if (options.predict) print_prediction(step.predicted, *options.predict);
  if (!options.ranks) return;

  std::vector<std::size_t> widths;
  const std::size_t rank_width = std::max<std::size_t>(4, std::to_string(plan.world_size()).size());
  fmt::print("\n{:>{}}", "rank", rank_width);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    widths.push_back(std::max(columns[i].name.size(), std::to_string(extents[i].max).size()));
    fmt::print("  {:>{}}", columns[i].name, widths.back());
  }
  fmt::print("\n");
  fmt::memory_buffer row;
  summary.for_each_rank([&](std::int64_t rank, const PlannedBytes& bytes) {
    row.clear();
    fmt::format_to(std::back_inserter(row), "{:>{}}", rank, rank_width);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      fmt::format_to(std::back_inserter(row), "  {:>{}}", columns[i].value(bytes), widths[i]);
    }
    row.push_back('\n');
    std::fwrite(row.data(), 1, row.size(), stdout);
  });
}

/// Rows are written as they come, so that a million of them need no memory.
void print_json(const Options& options, const Model& model, const ShardPlan& plan,
                const PlanSummary& summary, const PlannedStep& step) {
  const auto& columns = topologies::plan_columns();
  const std::vector<PlanExtent> extents = summary.extents();
  nlohmann::ordered_json json = {
      {"schema_version", 1},
      {"model", model.name},
      {"numel", model.numel()},
      {"tensors", model.parameters.size()},
      {"topology", topologies::topology_name(plan.topology())},
      {"wrap", nullptr},
      {"units", plan.unit_count()},
      {"world_size", plan.world_size()},
      {"shards", plan.shards()},
      {"replicas", plan.replicas()},
      {"optimizer", topologies::optimizer_name(options.state.optimizer)},
      {"state_policy", topologies::state_policy_name(options.state.policy)},
      {"dtype", nullptr},
      {"min_8bit_size", options.state.min_8bit_size},
      {"extra_collectives", extra_collectives(extents)},
  };
  if (!options.wrap.empty()) json["wrap"] = options.wrap;
  if (options.state.dtype) json["dtype"] = kernels::dtype_name(*options.state.dtype);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const PlanExtent& extent = extents[i];
    json["a_rank"][std::string(columns[i].name)] = {{"min", extent.min},
                                                    {"max", extent.max},
                                                    {"total", extent.total},
                                                    {"imbalance", extent.imbalance}};
  }
  for (const NamedTraffic& line : by_name(step.traffic)) {
    json["a_training_step"][line.name()] = {{"ranks", line.traffic.ranks},
                                            {"calls", line.traffic.calls},
                                            {"bytes", line.traffic.bytes}};
  }
  if (options.predict) {
    auto& predicted = json["predicted"];
    predicted = {{"measured", false},
                 {"latency_ns", options.predict->latency_ns},
                 {"bytes_per_s", options.predict->bytes_per_s}};
    for (const Predicted& line : step.predicted) {
      predicted[line.name] = {{"ring_ns", line.ring_ns}, {"tree_ns", line.tree_ns}};
    }
  }
  const std::string text =
      json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (!options.ranks) {
    fmt::print("{}\n", text);
    return;
  }
  fmt::print("{},\n  \"ranks\": [", text.substr(0, text.rfind("\n}")));
  fmt::memory_buffer row;
  summary.for_each_rank([&](std::int64_t rank, const PlannedBytes& bytes) {
    row.clear();
    fmt::format_to(std::back_inserter(row), "{}\n    {{\"rank\": {}", rank == 0 ? "" : ",", rank);
    for (const PlanColumn& column : columns) {
      fmt::format_to(std::back_inserter(row), ", \"{}\": {}", column.name, column.value(bytes));
    }
    row.push_back('}');
    std::fwrite(row.data(), 1, row.size(), stdout);
  });
  fmt::print("\n  ]\n}}\n");
}

/// Tensor by tensor for every rank that was asked for, and so only for as many as a file may hold.
void write_plan(const Options& options, const Model& model, const ShardPlan& plan,
                const PlanSummary& summary) {
  const auto asked = options.plan_ranks.empty()
                         ? plan.world_size()
                         : static_cast<std::int64_t>(options.plan_ranks.size());
  const auto units = static_cast<std::int64_t>(plan.unit_count());
  if (asked > kMaxPlanTensors / std::max<std::int64_t>(1, units)) {
    throw Error(fmt::format("a plan file of {} ranks with {} tensors each is too large", asked,
                            plan.unit_count()),
                "name the ranks that were traced with --plan-ranks");
  }
  tracer::ExpectedPlan expected;
  expected.world_size = plan.world_size();
  if (extra_collectives(summary.extents()) > 0) expected.collectives.push_back(kBorderCollective);
  const SteppedState state{.optimizer = options.state.optimizer,
                           .policy = options.state.policy,
                           .min_8bit_size = options.state.min_8bit_size};
  const auto add = [&](std::int64_t rank) {
    expected.ranks[rank] = expected_rank(model, plan, rank, state);
  };
  for (const std::int64_t rank : options.plan_ranks) add(rank);
  if (options.plan_ranks.empty()) {
    for (std::int64_t rank = 0; rank < plan.world_size(); ++rank) add(rank);
  }
  tracer::write_plan_file(expected, options.plan_out);
}

int run(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) return kFine;
  Model model = topologies::load_model(options->model);
  // A flat unit needs one data type, and it is the one that is asked for that counts.
  if (options->state.dtype) {
    for (auto& parameter : model.parameters) parameter.dtype = *options->state.dtype;
  }
  const ShardPlan plan = ShardPlan::make(model, options->plan);
  const PlanSummary summary(model, plan, options->state);
  PlannedStep step{.traffic = topologies::plan_unit_traffic(model, plan), .predicted = {}};
  if (options->predict) step.predicted = predict(step.traffic, *options->predict);
  if (!options->plan_out.empty()) write_plan(*options, model, plan, summary);
  (options->json ? print_json : print_table)(*options, model, plan, summary, step);
  // Who forgot to say what to plan should not take this for an answer about their own model.
  if (!options->names_model) {
    fmt::print(stderr, "plan_state: no --model is given; this is {} under {} on {} rank{}\n",
               model.name, topologies::topology_name(plan.topology()), plan.world_size(),
               plan.world_size() == 1 ? "" : "s");
  }
  return kFine;
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  return stepscope::run_program("plan_state", [&] { return stepscope::bench::run(argc, argv); });
}
