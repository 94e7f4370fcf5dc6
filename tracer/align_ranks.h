#pragma once

/// Purpose: several files in one trace: no rank twice, and all times on one clock where that is
/// possible.
///
/// Usage:
///     for (const auto& file : files) read_trace_file(file, trace, options);
///     const RankClock clock = align_ranks(trace);
///     trace.finish();
///
/// Caveats: contracts judge each rank by itself and need no common clock; whoever compares times of
/// two ranks must ask for RankClock first. Wall clocks of two machines differ by what their clock
/// synchronization leaves, milliseconds or less; nothing finer is claimed.

#include <string_view>

#include "tracer/trace.h"

namespace stepscope::tracer {

enum class RankClock {
  shared,      ///< one process, or all from one file, which has one clock
  wall_clock,  ///< every file says its wall-clock offset: times were moved onto the first's clock
  none,        ///< some file says none: times of two ranks must not be compared
};

/// "one clock", "aligned by the wall clock" or "no common clock: ...", for a report.
std::string_view rank_clock_text(RankClock clock);

/// Throws Error naming both files where two processes have the same rank, or where the files
/// disagree on the world size or hold a rank outside it. Otherwise moves the times as above.
RankClock align_ranks(Trace& trace);

}  // namespace stepscope::tracer
