#include "tracer/align_ranks.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/core/error_text.h"

namespace stepscope::tracer {
namespace {

Process rank(std::int64_t number, const std::string& file) {
  return {.rank = number, .file = file};
}

TEST(AlignRanks, RefusesTheSameRankTwice) {
  Trace trace;
  trace.add_process(rank(0, "a.json"));
  trace.add_process(rank(34, "b.json"));
  trace.add_process(rank(34, "c.json"));
  EXPECT_EQ(
      error_text([&] { align_ranks(trace); }),
      "c.json: is of rank 34, and so is b.json; give each rank's trace once, and files of one "
      "run only");
}

TEST(AlignRanks, RefusesFilesOfTwoJobs) {
  Trace trace;
  trace.add_process({.rank = 0, .world_size = 2, .file = "a.json"});
  trace.add_process({.rank = 1, .world_size = 4, .file = "b.json"});
  EXPECT_EQ(error_text([&] { align_ranks(trace); }),
            "b.json: is of a job of 4 ranks, and a.json of one of 2; give files of one run only");
  Trace outside;
  outside.add_process({.rank = 2, .world_size = 2, .file = "a.json"});
  EXPECT_EQ(error_text([&] { align_ranks(outside); }),
            "a.json: is of rank 2 of 2; record the trace again");
}

TEST(AlignRanks, MovesTimesOntoTheFirstRanksClock) {
  constexpr std::int64_t kEpoch = 1'800'000'000'000'000'000;
  Trace trace;
  trace.add_process({.rank = 0, .file = "a", .wall_clock_offset_ns = kEpoch});
  trace.add_process({.rank = 1, .file = "b", .wall_clock_offset_ns = kEpoch + 250});
  // Both happened at kEpoch + 1,000.
  trace.add({.start_ns = 1'000, .end_ns = 1'001, .process = 0});
  trace.add({.start_ns = 750, .end_ns = 751, .process = 1});
  EXPECT_EQ(align_ranks(trace), RankClock::wall_clock);
  trace.finish();
  for (const Event& event : trace.events()) {
    EXPECT_EQ(event.start_ns, 1'000);
    EXPECT_EQ(event.end_ns, 1'001);
    EXPECT_EQ(trace.processes()[event.process].wall_clock_offset_ns, kEpoch);
  }
}

TEST(AlignRanks, LeavesTimesAloneWhereAFileHasNoWallClock) {
  Trace trace;
  trace.add_process({.rank = 0, .file = "a", .wall_clock_offset_ns = 5});
  trace.add_process(rank(1, "b"));
  trace.add({.start_ns = 7, .end_ns = 8, .process = 1});
  EXPECT_EQ(align_ranks(trace), RankClock::none);
  EXPECT_EQ(trace.events()[0].start_ns, 7);
}

TEST(AlignRanks, KnowsThatOneFileHasOneClock) {
  Trace trace;
  trace.add_process(rank(0, "a"));
  EXPECT_EQ(align_ranks(trace), RankClock::shared);
  trace.add_process(rank(1, "a"));
  EXPECT_EQ(align_ranks(trace), RankClock::shared);
  // Ranks are not known everywhere; what is not known is not the same.
  trace.add_process({.file = "a"});
  trace.add_process({.file = "a"});
  EXPECT_EQ(align_ranks(trace), RankClock::shared);
}

TEST(AlignRanks, KnowsThatOneProcessWithoutAFileHasOneClock) {
  Trace trace;
  trace.add_process({.rank = 0});
  EXPECT_EQ(align_ranks(trace), RankClock::shared);
}

TEST(AlignRanks, RefusesClocksThatAreTooFarApart) {
  Trace trace;
  trace.add_process({.rank = 0, .file = "a", .wall_clock_offset_ns = -5});
  trace.add_process(
      {.rank = 1, .file = "b", .wall_clock_offset_ns = std::numeric_limits<std::int64_t>::max()});
  EXPECT_EQ(error_text([&] { align_ranks(trace); }),
            "b: has a wall-clock offset that is none; record the trace again");
}

}  // namespace
}  // namespace stepscope::tracer
