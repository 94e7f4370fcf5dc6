#include "bench/memory_guard.h"

#include <algorithm>
#include <string>

#include "bench/resident_memory.h"
#include "core/error.h"
#include "topologies/planned_bytes.h"

namespace stepscope::bench {
namespace {

/// What a rank takes besides its tensors: libtorch's pages, Gloo's buffers, the reference's
/// scratch. Measured at 200 to 300 MiB; rounded up.
constexpr std::int64_t kOverhead = std::int64_t{384} << 20;

std::string gibibytes(std::int64_t bytes) {
  const std::int64_t tenths = bytes / ((std::int64_t{1} << 30) / 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

}  // namespace

void require_memory(topologies::Communicator& communicator,
                    const topologies::DeviceRuntime& runtime, const topologies::Model& model,
                    const StepOptions& options, const std::vector<StepCase>& cases,
                    std::int64_t local_world_size) {
  topologies::together(communicator, [&] {
    std::int64_t largest = 0;
    std::string largest_case;
    for (const StepCase& step_case : cases) {
      const auto& config = step_case.config;
      const auto plan = topologies::ShardPlan::make(
          model, step_case.plan_options(options, communicator.world_size()));
      const auto bytes_under = [&](topologies::StatePolicy policy) {
        return topologies::planned_bytes(model, plan, communicator.rank(), config.optimizer,
                                         config.dtype, policy, config.min_8bit_size)
            .total();
      };
      std::int64_t bytes = bytes_under(config.state_policy);
      // Both optimizers of a comparison are alive at once.
      if (options.policy_cost) bytes += bytes_under(topologies::StatePolicy::global);
      if (bytes > largest) {
        largest = bytes;
        largest_case = step_case.benchmark_name(model.name);
      }
    }
    // Two builds that take turns are alive at once, and have not allocated yet.
    const std::int64_t builds = options.turns.taken() ? 2 : 1;
    const char* shared = options.turns.taken() ? ", half of which is this build's" : "";
    if (const auto own = runtime.available_bytes()) {
      if (largest <= *own / builds - kOverhead) return;
      throw Error(largest_case + " needs " + gibibytes(largest) +
                      " of tensors on this rank, whose device has " + gibibytes(*own) + " free" +
                      shared,
                  "use more ranks or a smaller model; nothing was allocated");
    }
    const auto available = available_bytes();
    if (!available) return;
    // Compared per rank, so that no product can overflow.
    const std::int64_t share = *available / builds / local_world_size;
    if (largest <= share - kOverhead) return;
    throw Error(largest_case + " needs " + gibibytes(largest) + " of tensors on this rank and " +
                    std::to_string(local_world_size) + " rank(s) share " + gibibytes(*available) +
                    " of free memory" + shared,
                "use more ranks on more hosts or a smaller model; nothing was allocated");
  });
}

}  // namespace stepscope::bench
