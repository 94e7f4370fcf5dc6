#pragma once

/// Purpose: one name for the trace files of many processes: %p is the process' number, %r its rank,
/// %% a percent sign.
///
/// Usage:  output_name("run/rank%r.sqlite", getpid(), 3)   // run/rank3.sqlite
///
/// Caveats: where the rank is not known, %r is "unknown": two such processes need %p as well.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace stepscope::tracer {

/// Throws Error for an empty pattern and for a % with anything else behind it.
std::filesystem::path output_name(std::string_view pattern, std::int64_t pid,
                                  std::optional<std::int64_t> rank);

}  // namespace stepscope::tracer
