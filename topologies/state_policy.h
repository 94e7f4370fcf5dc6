#pragma once

/// Purpose: which size decides between 8-bit and FP32 state, and where the blocks of 8-bit state
/// start.
///
/// Usage:
///     for (const LocalTensor& tensor : plan.local_tensors(rank)) {
///       for (const StatePiece& piece : state_pieces(model, tensor, optimizer, policy, minimum))
///       ...
///     }

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/shard_tensors.h"
#include "topologies/model.h"
#include "topologies/optimizer.h"
#include "topologies/shard_plan.h"

namespace stepscope::topologies {

enum class StatePolicy {
  local,     ///< threshold and blocks on the tensor that the rank is handed: what bitsandbytes does
             ///< under FSDP1, so that wrapping and world size decide the precision
  global,    ///< the threshold looks at the whole parameter (fsdp1: the whole unit), blocks start
             ///< with the shard: what bitsandbytes does with a DTensor
  original,  ///< threshold and block borders on the original parameter, whatever the topology
};

/// All of them, in the order of the enumeration.
const std::vector<StatePolicy>& all_state_policies();

/// "local", "global" or "original".
std::string_view state_policy_name(StatePolicy policy);

/// The inverse of state_policy_name. Throws Error listing the names otherwise.
StatePolicy parse_state_policy(std::string_view name);

/// The state format for a size: 8-bit where `asks_8bit` and the size that `policy` looks at is at
/// least `min_8bit_size`, as in bitsandbytes. `global_numel` is that of the whole parameter (or
/// flat unit; under `original` always of the parameter), `local_numel` that of what this rank is
/// handed; only `local` looks at the latter.
kernels::StateFormat state_format(StatePolicy policy, bool asks_8bit, std::int64_t global_numel,
                                  std::int64_t local_numel,
                                  std::int64_t min_8bit_size = kMin8bitSize);

/// One contiguous set of moments that a rank keeps: moment_numel() elements, blocks (where 8-bit)
/// from the first one. It serves the owned elements [position, position + numel) of the local
/// tensor.
struct StatePiece {
  kernels::StateFormat format = kernels::StateFormat::fp32;
  std::int64_t position = 0;  ///< of the first owned element, within the local tensor
  std::int64_t numel = 0;     ///< owned elements that it serves (`local`, `global`: with padding)
  std::int64_t before = 0;    ///< elements of another rank that precede them in their first block
  std::int64_t after = 0;     ///< elements of another rank that follow them in their last block

  /// Elements of each moment: before + numel + after.
  std::int64_t moment_numel() const { return before + numel + after; }
};

/// The moments of a local tensor, ascending in position; none where it is not stepped or empty.
/// `local` and `global`, and any policy for an optimizer that does not ask for 8-bit state: one
/// piece, the whole tensor with its padding. `original`: one piece a range, in their order; 8-bit
/// ones are rounded out to whole blocks of the parameter (`before` and `after`, at most 255 each),
/// FP32 ones are not; padding has no state.
std::vector<StatePiece> state_pieces(const Model& model, const LocalTensor& tensor,
                                     Optimizer optimizer, StatePolicy policy,
                                     std::int64_t min_8bit_size = kMin8bitSize);

}  // namespace stepscope::topologies
