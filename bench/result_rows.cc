#include "bench/result_rows.h"

#include <algorithm>

#include "core/program.h"
#include "results/percentile.h"
#include "results/row.h"

namespace stepscope::bench {
namespace {

/// bytes per second without an intermediate that could overflow or lose digits.
std::optional<std::int64_t> bandwidth(std::int64_t bytes, std::optional<std::int64_t> ns) {
  if (!ns || *ns <= 0) return std::nullopt;
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>(static_cast<Wide>(bytes) * 1'000'000'000 / *ns);
}

/// With turns, those steps too that are dropped at the start of each.
std::int64_t warmup_steps(const StepOptions& options) {
  std::int64_t steps = options.warmup_steps;
  if (options.turns.taken()) {
    const std::int64_t turns = (options.steps + options.turns.steps - 1) / options.turns.steps;
    steps += turns * options.turns.dropped;
  }
  return steps;
}

}  // namespace

void write_rows(results::RunFolder& folder, const StepSession& session, const CaseResult& result) {
  const auto& config = result.step_case.config;
  const auto median = results::percentile(result.samples.step_ns, 50);
  std::optional<std::int64_t> replicas;
  std::string wrapping;
  if (result.step_case.topology == topologies::Topology::hsdp) replicas = session.options.replicas;
  if (result.step_case.topology == topologies::Topology::fsdp1) wrapping = session.options.wrap;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const RankFigures& figures = result.ranks[rank];
    const auto slowest =
        std::count(result.samples.slowest_rank.begin(), result.samples.slowest_rank.end(),
                   static_cast<std::int64_t>(rank));
    results::Row row(results::results_table());
    set_figures(row, figures);
    row.set("benchmark", result.benchmark)
        .set("repetition", result.repetition)
        .set("subject", topologies::subject_name(config.subject))
        .set("optimizer", topologies::optimizer_name(config.optimizer))
        .set("topology", topologies::topology_name(result.step_case.topology))
        .set("state_policy", topologies::state_policy_name(config.state_policy))
        .set("wrapping", wrapping)
        .set("replicas", replicas)
        .set("dtype", kernels::dtype_name(config.dtype))
        .set("model", session.model.name)
        .set("device", topologies::device_name(config.device))
        .set("world_size", static_cast<std::int64_t>(result.ranks.size()))
        .set("rank", static_cast<std::int64_t>(rank))
        .set("substitute", session.options.substitute)
        .set("build_type", build_type())
        .set("status", result.failure.empty() ? "ok" : "failed")
        .set("status_reason", result.failure)
        .set("warmup_steps", warmup_steps(session.options))
        .set("steps", static_cast<std::int64_t>(result.samples.step_ns.size()))
        .set("p10_ns", results::percentile(result.samples.step_ns, 10))
        .set("p50_ns", median)
        .set("p90_ns", results::percentile(result.samples.step_ns, 90))
        .set("percentile_method", results::kPercentileMethod)
        .set("global_numel", session.model.numel())
        .set("parameters", static_cast<std::int64_t>(session.model.parameters.size()))
        .set("saving_vs_fp32_adamw", result.savings[rank])
        .set("bytes_moved", figures.bytes_moved)
        .set("effective_bandwidth_bytes_per_s", bandwidth(figures.bytes_moved, median))
        .set("max_over_rank_share",
             ratio(slowest, static_cast<std::int64_t>(result.samples.slowest_rank.size())))
        .set("learning_rate", config.hyperparameters.learning_rate)
        .set("checked", result.checked)
        .set("contract", result.contracts.status(rank));
    folder.add_result(row);
  }
  for (std::size_t step = 0; step < result.samples.step_ns.size(); ++step) {
    results::Row row(results::samples_table());
    row.set("benchmark", result.benchmark)
        .set("repetition", result.repetition)
        .set("step", static_cast<std::int64_t>(step))
        .set("step_ns", result.samples.step_ns[step])
        .set("slowest_rank", result.samples.slowest_rank[step])
        .set("middle_rank_ns", result.samples.middle_rank_ns[step])
        .set("start_ns", result.samples.start_ns[step]);
    folder.add_sample(row);
  }
}

}  // namespace stepscope::bench
