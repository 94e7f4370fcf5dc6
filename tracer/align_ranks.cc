#include "tracer/align_ranks.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/error.h"

namespace stepscope::tracer {
namespace {

void check_ranks(const Trace& trace) {
  std::map<std::int64_t, const Process*> by_rank;
  const Process* sized = nullptr;
  for (const Process& process : trace.processes()) {
    if (process.rank) {
      const auto [known, added] = by_rank.emplace(*process.rank, &process);
      if (!added) {
        throw Error(
            "is of rank " + std::to_string(*process.rank) + ", and so is " + known->second->file,
            "give each rank's trace once, and files of one run only", {.file = process.file});
      }
    }
    if (!process.world_size) continue;
    if (sized != nullptr && *sized->world_size != *process.world_size) {
      throw Error("is of a job of " + std::to_string(*process.world_size) + " ranks, and " +
                      sized->file + " of one of " + std::to_string(*sized->world_size),
                  "give files of one run only", {.file = process.file});
    }
    sized = &process;
    if (process.rank && (*process.rank < 0 || *process.rank >= *process.world_size)) {
      throw Error("is of rank " + std::to_string(*process.rank) + " of " +
                      std::to_string(*process.world_size),
                  "record the trace again", {.file = process.file});
    }
  }
}

}  // namespace

std::string_view rank_clock_text(RankClock clock) {
  switch (clock) {
    case RankClock::shared:
      return "one clock";
    case RankClock::wall_clock:
      return "aligned by the wall clock";
    case RankClock::none:
      return "no common clock: times of two ranks are not compared";
  }
  return "unknown";
}

RankClock align_ranks(Trace& trace) {
  check_ranks(trace);
  const auto& processes = trace.processes();
  const bool one_file =
      std::all_of(processes.begin(), processes.end(),
                  [&](const Process& process) { return process.file == processes.front().file; });
  // Processes that were recorded in this program have no file, but a clock each.
  if (processes.size() <= 1 || (one_file && !processes.front().file.empty())) {
    return RankClock::shared;
  }
  const bool all_known =
      std::all_of(processes.begin(), processes.end(),
                  [](const Process& process) { return process.wall_clock_offset_ns.has_value(); });
  if (!all_known) return RankClock::none;
  const std::int64_t first = *processes.front().wall_clock_offset_ns;
  for (std::uint32_t i = 1; i < processes.size(); ++i) {
    std::int64_t apart = 0;
    if (__builtin_sub_overflow(*processes[i].wall_clock_offset_ns, first, &apart)) {
      throw Error("has a wall-clock offset that is none", "record the trace again",
                  {.file = processes[i].file});
    }
    if (apart != 0) trace.shift(i, apart);
  }
  return RankClock::wall_clock;
}

}  // namespace stepscope::tracer
