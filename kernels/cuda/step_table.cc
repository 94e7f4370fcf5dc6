#include "kernels/cuda/step_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/shard_overlap.h"
#include "kernels/validate.h"

namespace stepscope::kernels::cuda {
namespace {

bool aligned(const void* pointer, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(bytes) == 0;
}

/// Whether a lane may move its elements with the widest accesses; null pointers do not matter.
bool is_vectorizable(const ShardTensors& t) {
  const bool codes = t.format == StateFormat::blockwise_8bit;
  // A lane's run is 16 bytes of parameters: 4 or 8 elements, so as many bytes of codes.
  const std::int64_t state = codes ? 16 / element_bytes(t.dtype) : 16;
  return aligned(t.param, 16) && aligned(t.grad, 16) && aligned(t.state1, state) &&
         aligned(t.state2, state);
}

}  // namespace

StepTable build_step_table(Algorithm algorithm, std::span<const ShardTensors> shards) {
  StepTable table;
  for (const ShardTensors& t : shards) {
    validate(algorithm, Hyperparameters{}, t);
    if (t.numel == 0) continue;
    const std::int64_t first = table.blocks;
    table.blocks += block_count(t.numel);
    table.tensors.push_back({.param = t.param,
                             .grad = t.grad,
                             .state1 = t.state1,
                             .state2 = t.state2,
                             .absmax1 = t.absmax1,
                             .absmax2 = t.absmax2,
                             .numel = t.numel,
                             .first_block = first,
                             .end_block = table.blocks,
                             .dtype = t.dtype,
                             .format = t.format,
                             .vectorizable = is_vectorizable(t),
                             .unused = {}});
    table.steps.push_back({.step = t.step, .scalars = {}});
  }
  std::vector<AddressRange> scratch;
  refuse_overlaps(shards, scratch);
  return table;
}

StepArguments deal_out(const StepTable& table, std::int64_t thread_blocks) {
  StepArguments arguments{};
  arguments.blocks_per_thread_block = table.blocks / thread_blocks;
  arguments.extra_blocks = table.blocks % thread_blocks;
  arguments.tensor_count = static_cast<std::int32_t>(table.tensors.size());
  return arguments;
}

std::int64_t grid_size(const StepTable& table, std::int64_t resident) {
  return std::min(resident, (table.blocks + kWarps - 1) / kWarps);
}

}  // namespace stepscope::kernels::cuda
