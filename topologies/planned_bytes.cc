#include "topologies/planned_bytes.h"

#include "kernels/code_tables.h"

namespace stepscope::topologies {
namespace {

// Bytes of all moments of a shard.
std::int64_t moment_bytes(kernels::StateFormat format, std::int64_t numel, int moments) {
  constexpr std::int64_t kFloatBytes = 4;
  const std::int64_t one = format == kernels::StateFormat::blockwise_8bit
                               ? numel + kFloatBytes * kernels::block_count(numel)
                               : kFloatBytes * numel;
  return moments * one;
}

}  // namespace

PlannedBytes planned_bytes(const Model& model, const ShardPlan& plan, std::int64_t rank,
                           Optimizer optimizer, std::optional<kernels::DType> dtype,
                           StatePolicy policy, std::int64_t min_8bit_size) {
  PlannedBytes bytes;
  for (const LocalShard& shard : plan.local_shards(rank)) {
    const Parameter& parameter = model.parameters[shard.parameter];
    const std::int64_t storage =
        shard.padded_numel * kernels::element_bytes(dtype.value_or(parameter.dtype));
    bytes.parameter += storage;
    bytes.local_numel += shard.numel;
    if (!is_stepped(parameter)) continue;
    bytes.gradient += storage;
    if (shard.numel == 0) continue;

    bytes.stepped_numel += shard.numel;
    const kernels::StateFormat format =
        state_format(policy, asks_8bit(optimizer), numel(parameter), shard.numel, min_8bit_size);
    bytes.moment += moment_bytes(format, shard.numel, moment_count(optimizer));
    if (format == kernels::StateFormat::blockwise_8bit) {
      bytes.code_tables = kernels::kCodeTableBytes;
    } else if (asks_8bit(optimizer)) {
      ++bytes.fp32_fallbacks;
    }
    if (optimizer == Optimizer::AdamW) bytes.step_counters += kTorchStepBytes;
  }
  return bytes;
}

}  // namespace stepscope::topologies
