#pragma once

/// Purpose: how many threads this process can use at once.
///
/// Usage:  threads = usable_cores() / ranks_of_this_host;

#include <cstdint>

namespace stepscope::bench {

/// Cores that the scheduler may run this process on (its affinity, not the host's number); at
/// least 1.
std::int64_t usable_cores();

}  // namespace stepscope::bench
