#include "topologies/state_policy.h"

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"

namespace stepscope::topologies {

using kernels::StateFormat;

const std::vector<StatePolicy>& all_state_policies() {
  static const std::vector<StatePolicy> all = {StatePolicy::local, StatePolicy::global,
                                               StatePolicy::original};
  return all;
}

std::string_view state_policy_name(StatePolicy policy) {
  switch (policy) {
    case StatePolicy::local:
      return "local";
    case StatePolicy::global:
      return "global";
    case StatePolicy::original:
      return "original";
  }
  throw Error("a state policy without a name");
}

StatePolicy parse_state_policy(std::string_view name) {
  for (const StatePolicy policy : all_state_policies()) {
    if (name == state_policy_name(policy)) return policy;
  }
  throw Error("unknown state policy " + printable(name), "use local, global or original");
}

StateFormat state_format(StatePolicy policy, bool asks_8bit, std::int64_t global_numel,
                         std::int64_t local_numel, std::int64_t min_8bit_size) {
  const std::int64_t numel = policy == StatePolicy::local ? local_numel : global_numel;
  return asks_8bit && numel >= min_8bit_size ? StateFormat::blockwise_8bit : StateFormat::fp32;
}

std::vector<StatePiece> state_pieces(const Model& model, const LocalTensor& tensor,
                                     Optimizer optimizer, StatePolicy policy,
                                     std::int64_t min_8bit_size) {
  if (!tensor.stepped || tensor.numel == 0) return {};
  if (policy != StatePolicy::original || !asks_8bit(optimizer)) {
    return {{.format = state_format(policy, asks_8bit(optimizer), tensor.global_numel, tensor.numel,
                                    min_8bit_size),
             .position = 0,
             .numel = tensor.numel}};
  }
  std::vector<StatePiece> pieces;
  pieces.reserve(tensor.ranges.size());
  for (const Range& range : tensor.ranges) {
    const std::int64_t size = numel(model.parameters[range.parameter]);
    StatePiece piece{.format = state_format(policy, true, size, range.numel, min_8bit_size),
                     .position = range.position,
                     .numel = range.numel};
    if (piece.format == StateFormat::blockwise_8bit) {
      const std::int64_t end = range.offset + range.numel;
      const std::int64_t last_block = (end - 1) / kernels::kBlockSize;
      piece.before = range.offset % kernels::kBlockSize;
      piece.after = std::min((last_block + 1) * kernels::kBlockSize, size) - end;
    }
    pieces.push_back(piece);
  }
  return pieces;
}

}  // namespace stepscope::topologies
