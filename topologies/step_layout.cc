#include "topologies/step_layout.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stepscope::topologies {
namespace {

using kernels::kBlockSize;

/// The part of `ranges` that lies in [position, position + numel), with positions from `position`
/// on.
std::vector<Range> clipped(const std::vector<Range>& ranges, std::int64_t position,
                           std::int64_t numel) {
  std::vector<Range> result;
  for (const Range& range : ranges) {
    const std::int64_t begin = std::max(range.position, position);
    const std::int64_t end = std::min(range.position + range.numel, position + numel);
    if (begin >= end) continue;
    result.push_back({.parameter = range.parameter,
                      .offset = range.offset + begin - range.position,
                      .numel = end - begin,
                      .position = begin - position});
  }
  return result;
}

class Builder {
 public:
  explicit Builder(StepLayout& layout) : layout_(layout) {
    for (std::size_t i = 0; i < layout.borders.blocks.size(); ++i) {
      const CutBlock& block = layout.borders.blocks[i];
      cut_blocks_[{block.parameter, block.offset}] = i;
    }
  }

  void add(std::size_t tensor, const LocalTensor& local, const StatePiece& state) {
    layout_.states.push_back(state);
    // Owned elements [done, numel) of the piece are still to be laid out.
    std::int64_t done = 0;
    if (state.before > 0) done = add_cut_block(tensor, local, state, 0, 0);
    std::int64_t tail = 0;
    if (state.after > 0 && done < state.numel) {
      tail = (state.before + state.numel) % kBlockSize;
    }
    if (done < state.numel - tail) {
      const std::int64_t position = state.position + done;
      const std::int64_t numel = state.numel - tail - done;
      layout_.pieces.push_back({.ranges = clipped(local.ranges, position, numel),
                                .numel = numel,
                                .format = state.format,
                                .state = layout_.states.size() - 1,
                                .state_offset = state.before + done,
                                .tensor = tensor,
                                .position = position,
                                .cut_block = std::nullopt});
    }
    if (tail > 0)
      add_cut_block(tensor, local, state, state.numel - tail, state.numel - tail + state.before);
  }

 private:
  /// Adds the cut block that holds owned element `own` of the piece and starts at `state_offset` of
  /// the state. Returns the number of owned elements up to the block's end.
  std::int64_t add_cut_block(std::size_t tensor, const LocalTensor& local, const StatePiece& state,
                             std::int64_t own, std::int64_t state_offset) {
    const Range first = clipped(local.ranges, state.position + own, 1).front();
    const std::int64_t start = first.offset - first.offset % kBlockSize;
    const std::size_t index = cut_blocks_.at({first.parameter, start});
    const CutBlock& block = layout_.borders.blocks[index];
    layout_.pieces.push_back({.ranges = {{.parameter = first.parameter,
                                          .offset = block.offset,
                                          .numel = block.numel,
                                          .position = 0}},
                              .numel = block.numel,
                              .format = state.format,
                              .state = layout_.states.size() - 1,
                              .state_offset = state_offset,
                              .tensor = tensor,
                              .position = block.position,
                              .cut_block = index});
    return own + block.own_numel;
  }

  StepLayout& layout_;
  std::map<std::pair<std::size_t, std::int64_t>, std::size_t> cut_blocks_;
};

}  // namespace

StepLayout step_layout(const Model& model, const ShardPlan& plan, std::int64_t rank,
                       Optimizer optimizer, StatePolicy policy, std::int64_t min_8bit_size) {
  StepLayout layout;
  if (policy == StatePolicy::original && asks_8bit(optimizer)) {
    layout.borders = plan_borders(model, plan, rank, min_8bit_size);
  }
  Builder builder(layout);
  const auto tensors = plan.local_tensors(rank);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (const StatePiece& state :
         state_pieces(model, tensors[i], optimizer, policy, min_8bit_size)) {
      builder.add(i, tensors[i], state);
    }
  }
  return layout;
}

}  // namespace stepscope::topologies
