#pragma once

/// Purpose: which ranges and operators an event of a host thread lies in, for messages that say
/// where something came from.
///
/// Usage:
///     const RangePaths paths = range_paths(trace, {index, other});   // ascending
///     paths.at(index)   // "case OptimizerStep/... > step 3 > phase optimizer > aten::copy_"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracer/trace.h"

namespace stepscope::tracer {

/// By index into Trace::events(); outermost first, at most the six innermost.
using RangePaths = std::unordered_map<std::uint32_t, std::string>;

/// The paths of `events` (ascending indices of host events) in one pass over the finished trace.
RangePaths range_paths(const Trace& trace, const std::vector<std::uint32_t>& events);

}  // namespace stepscope::tracer
