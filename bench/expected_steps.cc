#include "bench/expected_steps.h"

#include <string>

#include "topologies/step_layout.h"

namespace stepscope::bench {
namespace {

/// The first parameter of a piece; that of its unit where the piece is nothing but padding.
const std::string& first_name(const topologies::Model& model, const topologies::ShardPlan& plan,
                              const topologies::StepPiece& piece, std::size_t unit) {
  const std::size_t parameter =
      piece.ranges.empty() ? plan.parameters(unit).front() : piece.ranges.front().parameter;
  return model.parameters[parameter].name;
}

}  // namespace

tracer::ExpectedRank expected_rank(const topologies::Model& model,
                                   const topologies::ShardPlan& plan, std::int64_t rank,
                                   const SteppedState& state) {
  const auto layout = topologies::step_layout(model, plan, rank, state.optimizer, state.policy,
                                              state.min_8bit_size);
  const auto tensors = plan.local_tensors(rank);
  tracer::ExpectedRank expected;
  expected.tensors.reserve(layout.pieces.size());
  for (const topologies::StepPiece& piece : layout.pieces) {
    const topologies::LocalTensor& tensor = tensors.at(piece.tensor);
    expected.tensors.push_back({.name = first_name(model, plan, piece, tensor.unit),
                                .n = piece.numel,
                                .whole = tensor.global_numel});
  }
  return expected;
}

}  // namespace stepscope::bench
