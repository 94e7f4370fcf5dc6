#pragma once

/// Purpose: which size decides between 8-bit and FP32 state.
///
/// Usage:  state_format(StatePolicy::global, asks_8bit(optimizer), numel(parameter), shard.numel);

#include <cstdint>
#include <string_view>

#include "kernels/shard_tensors.h"
#include "topologies/optimizer.h"

namespace stepscope::topologies {

enum class StatePolicy {
  global,  ///< the threshold looks at the whole parameter, blocks start with the shard: what
           ///< bitsandbytes does with a DTensor
};

/// "global".
std::string_view state_policy_name(StatePolicy policy);

/// The inverse of state_policy_name. Throws Error listing the names otherwise.
StatePolicy parse_state_policy(std::string_view name);

/// The state format of one shard: 8-bit where `asks_8bit` and the size that `policy` looks at is at
/// least `min_8bit_size`, as in bitsandbytes. `global_numel` and `local_numel` are the elements of
/// the whole parameter and of this rank's shard; `global` does not look at the latter.
kernels::StateFormat state_format(StatePolicy policy, bool asks_8bit, std::int64_t global_numel,
                                  std::int64_t local_numel,
                                  std::int64_t min_8bit_size = kMin8bitSize);

}  // namespace stepscope::topologies
