#pragma once

/// Purpose: whether two traces say the same, whatever their numbers for names and details are.
///
/// Usage:  expect_same(trace, read_again);

#include <gtest/gtest.h>

#include <string>

#include "tracer/trace.h"

namespace stepscope::tracer {

/// All that an event says, as text.
inline std::string describe(const Trace& trace, const Event& event) {
  std::string text;
  const auto add = [&](auto value) { text += std::to_string(value) + " "; };
  text += std::string(event_kind_name(event.kind)) + " '" + std::string(trace.name(event)) + "' ";
  add(event.start_ns), add(event.end_ns), add(event.value), add(event.correlation);
  add(event.thread), add(event.stream), add(event.device), add(event.process);
  text += std::string(copy_direction_name(event.direction)) + " " +
          std::string(collective_kind_name(event.collective)) + " ";
  add(static_cast<int>(event.value_source));
  if (event.detail == kNoDetail) return text;
  if (event.kind == EventKind::kernel) {
    const Launch& launch = trace.launch(event.detail);
    for (const auto extent : launch.grid) add(extent);
    for (const auto extent : launch.block) add(extent);
    add(launch.static_shared_bytes), add(launch.dynamic_shared_bytes);
    add(launch.registers_per_thread);
    return text;
  }
  for (const TensorInput& input : trace.inputs(event.detail)) {
    text += "[" + input.dtype + " ";
    add(input.argument), add(input.on_device ? 1 : 0);
    for (const auto extent : input.shape) add(extent);
    text += "] ";
  }
  return text;
}

inline void expect_same(const Trace& a, const Trace& b) {
  ASSERT_EQ(a.events().size(), b.events().size());
  for (std::size_t i = 0; i < a.events().size(); ++i) {
    ASSERT_EQ(describe(a, a.events()[i]), describe(b, b.events()[i])) << "event " << i;
  }
  ASSERT_EQ(a.processes().size(), b.processes().size());
  for (std::size_t i = 0; i < a.processes().size(); ++i) {
    const Process& x = a.processes()[i];
    const Process& y = b.processes()[i];
    EXPECT_EQ(x.rank, y.rank);
    EXPECT_EQ(x.world_size, y.world_size);
    EXPECT_EQ(x.pid, y.pid);
    EXPECT_EQ(x.source, y.source);
    EXPECT_EQ(x.wall_clock_offset_ns, y.wall_clock_offset_ns);
    EXPECT_EQ(x.dropped, y.dropped);
    EXPECT_EQ(x.launched, y.launched);
    EXPECT_EQ(x.host_dropped, y.host_dropped);
  }
  EXPECT_EQ(a.health().without_time, b.health().without_time);
  EXPECT_EQ(a.health().negative_duration, b.health().negative_duration);
  EXPECT_EQ(a.health().impossible_duration, b.health().impossible_duration);
  EXPECT_EQ(a.health().duplicates, b.health().duplicates);
}

}  // namespace stepscope::tracer
