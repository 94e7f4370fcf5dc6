#pragma once

/// Purpose: refuse a list of shards in which two have memory in common: threads would step it at
/// once, and whichever came last would win.
///
/// Usage:
///     std::vector<AddressRange> scratch;  // keep it, and later calls allocate nothing
///
///     refuse_overlaps(shards, scratch);
///
///     OverlapCheck check;  // where the same list comes again and again, as in a training's steps
///     check.refuse_overlaps(shards);
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

/// Remembers the last list that it found in order, and does not sort one that takes the same
/// memory. On two cores the step of 10,000 tensors of 256 elements takes 2.5 ms; so does sorting
/// them, and comparing them with the last list 0.1 ms.
class OverlapCheck {
 public:
  /// As the function above. Allocates nothing for a list as long as one before.
  void refuse_overlaps(std::span<const ShardTensors> shards);

 private:
  std::vector<ShardTensors> accepted_;
  std::vector<AddressRange> scratch_;
};

}  // namespace stepscope::kernels
