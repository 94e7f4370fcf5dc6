#include "topologies/planned_bytes.h"

#include <algorithm>

#include "kernels/code_tables.h"

namespace stepscope::topologies {
namespace {

using kernels::StateFormat;

// Bytes of all moments of a piece.
std::int64_t moment_bytes(StateFormat format, std::int64_t numel, int moments) {
  constexpr std::int64_t kFloatBytes = 4;
  const std::int64_t one = format == StateFormat::blockwise_8bit
                               ? numel + kFloatBytes * kernels::block_count(numel)
                               : kFloatBytes * numel;
  return moments * one;
}

/// Adds the block of `range`'s parameter that holds element `inside`, if a border cuts it. Each
/// owner of a part sends it to every other owner, in the type of the gradient.
void add_cut_block(const ShardPlan& plan, const Range& range, std::int64_t parameter_numel,
                   std::int64_t inside, std::int64_t element_bytes, PlannedBytes& bytes) {
  const std::int64_t begin = inside / kernels::kBlockSize * kernels::kBlockSize;
  const std::int64_t end = std::min(begin + kernels::kBlockSize, parameter_numel);
  const std::int64_t mine =
      std::min(end, range.offset + range.numel) - std::max(begin, range.offset);
  if (mine == end - begin) return;
  const auto owners =
      static_cast<std::int64_t>(plan.owners(range.parameter, begin, end - begin).size());
  ++bytes.cut_blocks;
  bytes.border_traffic += mine * element_bytes * (owners - 1);
}

}  // namespace

void PlannedBytes::add(const PlannedBytes& other, std::int64_t times) {
  for (std::int64_t PlannedBytes::* const sum :
       {&PlannedBytes::parameter, &PlannedBytes::gradient, &PlannedBytes::moment,
        &PlannedBytes::step_counters, &PlannedBytes::local_numel, &PlannedBytes::stepped_numel,
        &PlannedBytes::numel_8bit, &PlannedBytes::fp32_fallbacks, &PlannedBytes::pieces_8bit,
        &PlannedBytes::pieces_fp32, &PlannedBytes::empty_shards, &PlannedBytes::cut_blocks,
        &PlannedBytes::foreign_numel, &PlannedBytes::border_traffic}) {
    this->*sum += times * (other.*sum);
  }
}

void PlannedBytes::set_code_tables() {
  code_tables = pieces_8bit > 0 ? kernels::kCodeTableBytes : 0;
}

PlannedBytes planned_tensor_bytes(const Model& model, const ShardPlan& plan,
                                  const LocalTensor& tensor, const StateOptions& options) {
  PlannedBytes bytes;
  const Parameter& first = model.parameters[plan.parameters(tensor.unit).front()];
  const std::int64_t element_bytes = kernels::element_bytes(options.dtype.value_or(first.dtype));
  bytes.parameter = tensor.padded_numel * element_bytes;
  for (const Range& range : tensor.ranges) bytes.local_numel += range.numel;
  bytes.empty_shards = tensor.ranges.empty() ? 1 : 0;
  if (!tensor.stepped) return bytes;
  bytes.gradient = bytes.parameter;
  if (tensor.numel == 0) return bytes;

  bytes.stepped_numel = bytes.local_numel;
  if (options.optimizer == Optimizer::AdamW) bytes.step_counters = kTorchStepBytes;
  const auto pieces =
      state_pieces(model, tensor, options.optimizer, options.policy, options.min_8bit_size);
  const bool by_range = options.policy == StatePolicy::original && asks_8bit(options.optimizer);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const StatePiece& piece = pieces[i];
    bytes.moment +=
        moment_bytes(piece.format, piece.moment_numel(), moment_count(options.optimizer));
    if (piece.format == StateFormat::fp32) {
      ++bytes.pieces_fp32;
      if (asks_8bit(options.optimizer)) ++bytes.fp32_fallbacks;
      continue;
    }
    ++bytes.pieces_8bit;
    if (!by_range) {
      bytes.numel_8bit += bytes.local_numel;
      continue;
    }
    const Range& range = tensor.ranges[i];
    bytes.numel_8bit += range.numel;
    bytes.foreign_numel += piece.before + piece.after;
    if (piece.before + piece.after == 0) continue;
    const std::int64_t size = numel(model.parameters[range.parameter]);
    const std::int64_t last = range.offset + range.numel - 1;
    add_cut_block(plan, range, size, range.offset, element_bytes, bytes);
    if (last / kernels::kBlockSize != range.offset / kernels::kBlockSize) {
      add_cut_block(plan, range, size, last, element_bytes, bytes);
    }
  }
  return bytes;
}

PlannedBytes planned_bytes(const Model& model, const ShardPlan& plan, std::int64_t rank,
                           const StateOptions& options) {
  PlannedBytes bytes;
  for (const LocalTensor& tensor : plan.local_tensors(rank)) {
    bytes.add(planned_tensor_bytes(model, plan, tensor, options));
  }
  bytes.set_code_tables();
  return bytes;
}

PlannedBytes planned_bytes(const Model& model, const ShardPlan& plan, std::int64_t rank,
                           Optimizer optimizer, std::optional<kernels::DType> dtype,
                           StatePolicy policy, std::int64_t min_8bit_size) {
  return planned_bytes(
      model, plan, rank,
      {.optimizer = optimizer, .dtype = dtype, .policy = policy, .min_8bit_size = min_8bit_size});
}

}  // namespace stepscope::topologies
