#include "kernels/shard_overlap.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace stepscope::kernels {
namespace {

/// Whether two shards take the same memory, whatever their step.
bool same_memory(const ShardTensors& a, const ShardTensors& b) {
  return a.param == b.param && a.grad == b.grad && a.numel == b.numel && a.dtype == b.dtype &&
         a.grad_dtype == b.grad_dtype && a.format == b.format && a.state1 == b.state1 &&
         a.state2 == b.state2 && a.absmax1 == b.absmax1 && a.absmax2 == b.absmax2 &&
         a.absmax_count == b.absmax_count;
}

}  // namespace

void refuse_overlaps(std::span<const ShardTensors> shards, std::vector<AddressRange>& scratch) {
  scratch.clear();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ShardTensors& t = shards[i];
    if (t.numel == 0) continue;
    const auto add = [&](const void* pointer, std::int64_t bytes) {
      if (pointer == nullptr) return;
      const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
      scratch.push_back({begin, begin + static_cast<std::uintptr_t>(bytes), i});
    };
    const std::int64_t state = t.format == StateFormat::blockwise_8bit ? 1 : 4;
    add(t.param, t.numel * element_bytes(t.dtype));
    add(t.grad, t.numel * element_bytes(t.grad_dtype));
    add(t.state1, t.numel * state);
    add(t.state2, t.numel * state);
    add(t.absmax1, t.absmax_count * 4);
    add(t.absmax2, t.absmax_count * 4);
  }
  std::ranges::sort(scratch, {}, &AddressRange::begin);
  for (std::size_t i = 1; i < scratch.size(); ++i) {
    if (scratch[i].begin < scratch[i - 1].end) {
      const auto [first, second] = std::minmax(scratch[i].shard, scratch[i - 1].shard);
      throw Error("shards " + std::to_string(first) + " and " + std::to_string(second) +
                      " of the list overlap in memory",
                  "list every shard once, and give each its own memory");
    }
  }
}

void OverlapCheck::refuse_overlaps(std::span<const ShardTensors> shards) {
  if (std::ranges::equal(shards, accepted_, same_memory)) return;
  accepted_.clear();
  kernels::refuse_overlaps(shards, scratch_);
  accepted_.assign(shards.begin(), shards.end());
}

}  // namespace stepscope::kernels
