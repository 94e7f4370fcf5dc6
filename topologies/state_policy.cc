#include "topologies/state_policy.h"

#include "core/error.h"
#include "topologies/printable.h"

namespace stepscope::topologies {

std::string_view state_policy_name(StatePolicy policy) {
  switch (policy) {
    case StatePolicy::global:
      return "global";
  }
  throw Error("a state policy without a name");
}

StatePolicy parse_state_policy(std::string_view name) {
  if (name == state_policy_name(StatePolicy::global)) return StatePolicy::global;
  throw Error("unknown state policy " + printable(name), "use global");
}

kernels::StateFormat state_format(StatePolicy policy, bool asks_8bit, std::int64_t global_numel,
                                  std::int64_t /*local_numel*/, std::int64_t min_8bit_size) {
  switch (policy) {
    case StatePolicy::global:
      return asks_8bit && global_numel >= min_8bit_size ? kernels::StateFormat::blockwise_8bit
                                                        : kernels::StateFormat::fp32;
  }
  throw Error("a state policy without a rule");
}

}  // namespace stepscope::topologies
