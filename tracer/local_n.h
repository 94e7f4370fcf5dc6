#pragma once

/// Purpose: the contract `local-n` as arithmetic: whether a step's updates are those of the shard
/// plan's local tensors, one each.
///
/// Usage:
///     const SizeVerdict verdict = compare_sizes(expected_tensors, updates);
///
/// An update says its n exactly, or between two bounds (from the grid), or not at all. Exact ones
/// must be the plan's multiset. Bounds can exclude it, which is broken; they can never show it:
/// where they allow it the verdict is unverified, "bounded".

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tracer/expected_plan.h"
#include "tracer/verdict.h"

namespace stepscope::tracer {

/// One update, or one tensor of an update over several.
struct UpdateSize {
  std::uint32_t event = 0;           ///< index into Trace::events()
  std::optional<std::int64_t> low;   ///< n is at least this; nothing where nothing is known
  std::optional<std::int64_t> high;  ///< and at most this: the same where n is exact
};

struct SizeVerdict {
  Status status = Status::ok;
  std::string reason;                 ///< empty where it is ok
  std::vector<UpdateSize> offenders;  ///< in the order of `updates`
};

/// Compares the sizes of `expected` that are not 0 with `updates`.
SizeVerdict compare_sizes(std::span<const ExpectedTensor> expected,
                          std::span<const UpdateSize> updates);

/// For a kernel that steps all tensors at once, in blocks of `block` elements, told to do `blocks`
/// of them: the plan allows exactly one number of blocks.
SizeVerdict compare_blocks(std::span<const ExpectedTensor> expected, std::uint32_t event,
                           std::int64_t blocks, std::int64_t block);

}  // namespace stepscope::tracer
