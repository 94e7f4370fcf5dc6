#include "bench/train_rows.h"

#include <algorithm>
#include <cmath>

#include "core/program.h"
#include "results/percentile.h"
#include "results/row.h"

namespace stepscope::bench {
namespace {

std::optional<double> finite(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

void write_train_rows(results::RunFolder& folder, const TrainSetting& setting,
                      const TrainResult& result,
                      const std::vector<std::optional<double>>& savings) {
  const auto& config = result.train_case.config;
  const auto& plan = result.train_case.plan;
  const auto& model = setting.network.model();
  const auto& samples = result.samples;
  std::optional<std::int64_t> replicas;
  std::string wrapping;
  if (plan.topology == topologies::Topology::hsdp) replicas = plan.replicas;
  if (plan.topology == topologies::Topology::fsdp1) wrapping = "blocks";
  std::optional<double> last_loss;
  if (!result.losses.empty()) last_loss = finite(result.last_loss);
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const auto slowest = std::count(samples.slowest_rank.begin(), samples.slowest_rank.end(),
                                    static_cast<std::int64_t>(rank));
    results::Row row(results::results_table());
    set_figures(row, result.ranks[rank]);
    row.set("benchmark", result.benchmark)
        .set("repetition", 0)
        .set("subject", topologies::subject_name(config.subject))
        .set("optimizer", topologies::optimizer_name(config.optimizer))
        .set("topology", topologies::topology_name(plan.topology))
        .set("state_policy", topologies::state_policy_name(config.state_policy))
        .set("wrapping", wrapping)
        .set("replicas", replicas)
        .set("dtype", kernels::dtype_name(config.dtype))
        .set("model", model.name)
        .set("device", topologies::device_name(config.device))
        .set("world_size", static_cast<std::int64_t>(result.ranks.size()))
        .set("rank", static_cast<std::int64_t>(rank))
        .set("build_type", build_type())
        .set("status", result.failure.empty() ? "ok" : "failed")
        .set("status_reason", result.failure)
        .set("warmup_steps", setting.options.warmup_steps)
        .set("steps", static_cast<std::int64_t>(samples.step_ns.size()))
        .set("p10_ns", results::percentile(samples.step_ns, 10))
        .set("p50_ns", results::percentile(samples.step_ns, 50))
        .set("p90_ns", results::percentile(samples.step_ns, 90))
        .set("percentile_method", results::kPercentileMethod)
        .set("global_numel", model.numel())
        .set("parameters", static_cast<std::int64_t>(model.parameters.size()))
        .set("saving_vs_fp32_adamw", savings[rank])
        .set("max_over_rank_share",
             ratio(slowest, static_cast<std::int64_t>(samples.slowest_rank.size())))
        .set("learning_rate", config.hyperparameters.learning_rate)
        .set("first_loss", finite(result.untrained_loss))
        .set("last_loss", last_loss)
        .set("checked", "loss: finite and falling")
        .set("contract", result.contracts.status(rank));
    folder.add_result(row);
  }
  for (std::size_t step = 0; step < samples.step_ns.size(); ++step) {
    results::Row row(results::samples_table());
    row.set("benchmark", result.benchmark)
        .set("repetition", 0)
        .set("step", static_cast<std::int64_t>(step))
        .set("step_ns", samples.step_ns[step])
        .set("slowest_rank", samples.slowest_rank[step])
        .set("middle_rank_ns", samples.middle_rank_ns[step])
        .set("start_ns", samples.start_ns[step])
        .set("loss", finite(result.losses[step]));
    folder.add_sample(row);
  }
}

}  // namespace stepscope::bench
