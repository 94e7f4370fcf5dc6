#include "tracer/trace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace stepscope::tracer {
namespace {

Event kernel(std::int64_t start, std::int64_t end, std::uint64_t correlation = 0) {
  return {.start_ns = start,
          .end_ns = end,
          .correlation = correlation,
          .device = 0,
          .kind = EventKind::kernel};
}

TEST(Trace, CountsImpossibleTimesByReasonAndLeavesThemOut) {
  Trace trace;
  trace.add_process({.rank = 0});
  for (std::int64_t i = 0; i < 3; ++i) trace.add(kernel(1'000 + i * 20'000, 11'000 + i * 20'000));
  trace.add(kernel(0, 0));
  trace.add(kernel(70'000, 69'995));
  trace.add(kernel(70'000, 7'400'000'000'000'000'000));
  trace.add(kernel(std::numeric_limits<std::int64_t>::min(), 5));
  trace.finish();
  std::int64_t total = 0;
  for (const Event& event : trace.events()) total += event.duration_ns();
  EXPECT_EQ(total, 30'000);
  EXPECT_EQ(trace.events().front().start_ns, 1'000);
  EXPECT_EQ(trace.health().without_time, 1);
  EXPECT_EQ(trace.health().negative_duration, 1);
  EXPECT_EQ(trace.health().impossible_duration, 2);
}

TEST(Trace, KeepsOneOfARecordThatWasDeliveredTwice) {
  Trace trace;
  trace.add_process({.rank = 0});
  trace.add(kernel(10, 20, 7));
  trace.add(kernel(30, 40, 8));
  trace.add(kernel(10, 20, 7));
  trace.finish();
  EXPECT_EQ(trace.events().size(), 2U);
  EXPECT_EQ(trace.health().duplicates, 1);
}

TEST(Trace, PutsAnEnclosingRangeBeforeWhatItHolds) {
  Trace trace;
  trace.add_process({.rank = 0});
  trace.add(kernel(10, 20));
  trace.add({.start_ns = 10, .end_ns = 50, .name = trace.intern("step")});
  trace.finish();
  EXPECT_EQ(trace.name(trace.events().front()), "step");
}

TEST(Trace, GivesEqualTextsOneNumber) {
  Trace trace;
  EXPECT_EQ(trace.intern(""), 0U);
  const auto number = trace.intern("aten::add");
  for (int i = 0; i < 1'000; ++i) trace.intern("name " + std::to_string(i));
  EXPECT_EQ(trace.intern("aten::add"), number);
  EXPECT_EQ(trace.text(number), "aten::add");
}

TEST(Trace, GivesEqualLaunchesAndEqualInputsOneNumber) {
  Trace trace;
  const auto launch = trace.add_launch({.grid = {3, 1, 1}});
  EXPECT_NE(trace.add_launch({.grid = {1, 3, 1}}), launch);
  EXPECT_EQ(trace.add_launch({.grid = {3, 1, 1}}), launch);
  const auto inputs = trace.add_inputs({{.shape = {2, 3}, .dtype = "float"}});
  EXPECT_NE(trace.add_inputs({{.shape = {2, 3}, .dtype = "double"}}), inputs);
  EXPECT_NE(trace.add_inputs({{.shape = {2}}, {.shape = {3}}}), inputs);
  EXPECT_EQ(trace.add_inputs({{.shape = {2, 3}, .dtype = "float"}}), inputs);
}

TEST(TensorInput, HasNoElementCountWhereItsShapeOverflows) {
  EXPECT_EQ((TensorInput{.shape = {3, 5}}).numel(), 15);
  EXPECT_EQ((TensorInput{}).numel(), 1);
  EXPECT_EQ((TensorInput{.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40}}).numel(),
            kNoValue);
  EXPECT_EQ((TensorInput{.shape = {-1}}).numel(), kNoValue);
}

}  // namespace
}  // namespace stepscope::tracer
