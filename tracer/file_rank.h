#pragma once

/// Purpose: giving a file's process the rank that the user said, where the file says none.
///
/// Usage:  if (options.rank) set_rank(trace, processes_of_the_file, *options.rank, path);

#include <cstdint>
#include <string>
#include <vector>

#include "tracer/trace.h"

namespace stepscope::tracer {

/// Throws Error naming the file where it has several processes, or says another rank itself.
void set_rank(Trace& trace, const std::vector<std::uint32_t>& processes, std::int64_t rank,
              const std::string& file);

}  // namespace stepscope::tracer
