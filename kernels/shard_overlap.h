#pragma once

/// Purpose: refuse a list of shards in which two have memory in common: threads would step it at
/// once, and whichever came last would win.
///
/// Usage:
///     std::vector<AddressRange> scratch;  // keep it, and later calls allocate nothing
///
///     refuse_overlaps(shards, scratch);
///
/// Caveats: only addresses are looked at, so they may be the device's. Gradients count, too: the
/// same gradient in two shards is a mistake in the list. Each shard by itself has passed
/// kernels/validate.h before.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

/// Memory of one tensor of one shard of the list.
struct AddressRange {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::size_t shard;
};

/// Throws Error that names two shards by their place in the list, counted from 0, where tensors of
/// theirs overlap. `scratch` is overwritten. Sorts the tensors by address: O(n log n).
void refuse_overlaps(std::span<const ShardTensors> shards, std::vector<AddressRange>& scratch);

}  // namespace stepscope::kernels
