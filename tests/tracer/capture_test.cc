#include "tracer/capture.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tracer/host_recorder.h"
#include "tracer/range.h"

namespace stepscope::tracer {
namespace {

std::vector<std::string> names(const Trace& trace) {
  std::vector<std::string> found;
  for (const Event& event : trace.events()) found.emplace_back(trace.name(event));
  return found;
}

TEST(Capture, RangesComeOutNestedOnTheirThread) {
  Capture capture({.rank = 3, .world_size = 4}, {});
  capture.start();
  {
    const Range model("model tiny");
    const Range step("step 0");
  }
  const Trace trace = capture.stop();
  EXPECT_EQ(names(trace), (std::vector<std::string>{"stepscope:model tiny", "stepscope:step 0"}));
  const Event& outer = trace.events()[0];
  const Event& inner = trace.events()[1];
  EXPECT_EQ(outer.kind, EventKind::range);
  EXPECT_LE(outer.start_ns, inner.start_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
  EXPECT_EQ(outer.thread, thread_number());
  ASSERT_EQ(trace.processes().size(), 1U);
  const Process& process = trace.processes().front();
  EXPECT_EQ(process.rank, 3);
  EXPECT_EQ(process.world_size, 4);
  EXPECT_EQ(process.host_dropped, 0);
  EXPECT_TRUE(process.wall_clock_offset_ns.has_value());
}

TEST(Capture, NothingIsRecordedOutsideOfIt) {
  {
    const Range before("before");
  }
  Capture capture({}, {});
  {
    const Range between("between");
  }
  capture.start();
  const Trace trace = capture.stop();
  {
    const Range after("after");
  }
  EXPECT_TRUE(trace.events().empty());
}

TEST(Capture, WhatIsOpenAtTheEndEndsThere) {
  Capture capture({}, {});
  capture.start();
  const Range open("open");
  const std::int64_t before = trace_clock_ns();
  const Trace trace = capture.stop();
  ASSERT_EQ(trace.events().size(), 1U);
  EXPECT_GE(trace.events()[0].end_ns, before);
}

TEST(Capture, AnEndThatComesAfterTheNextStartIsIgnored) {
  Capture capture({}, {});
  capture.start();
  std::uint64_t epoch = 0;
  HostRecord* const record = HostRecorder::instance().begin({.name = "async"}, epoch);
  ASSERT_NE(record, nullptr);
  capture.stop();
  capture.start();
  std::uint64_t new_epoch = 0;
  HostRecorder::instance().begin({.name = "other"}, new_epoch);
  HostRecorder::instance().end(record, epoch);
  const std::int64_t before = trace_clock_ns();
  const Trace trace = capture.stop();
  ASSERT_EQ(trace.events().size(), 1U);
  EXPECT_EQ(trace.name(trace.events()[0]), "other");
  EXPECT_GE(trace.events()[0].end_ns, before)
      << "the old record's end was written over the new one";
}

TEST(Capture, TensorsKeepShapeTypeAndPlace) {
  Capture capture({}, {});
  capture.start();
  constexpr std::array<std::int64_t, 2> kShape = {3, 1400};
  const std::array<TensorView, 2> tensors = {
      TensorView{.sizes = kShape, .dtype = "float", .argument = 0},
      TensorView{.sizes = {}, .dtype = "unsigned char", .argument = 4, .on_device = true}};
  HostRecorder::instance().add({.kind = EventKind::host_operator,
                                .name = "some::operator",
                                .value = 4200,
                                .value_source = ValueSource::exact,
                                .tensors = tensors},
                               10, 25);
  const Trace trace = capture.stop();
  ASSERT_EQ(trace.events().size(), 1U);
  const Event& event = trace.events()[0];
  EXPECT_EQ(event.duration_ns(), 15);
  EXPECT_EQ(event.value, 4200);
  const auto inputs = trace.inputs(event.detail);
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].shape, (std::vector<std::int64_t>{3, 1400}));
  EXPECT_EQ(inputs[0].dtype, "float");
  EXPECT_FALSE(inputs[0].on_device);
  EXPECT_TRUE(inputs[1].shape.empty());
  EXPECT_EQ(inputs[1].argument, 4);
  EXPECT_TRUE(inputs[1].on_device);
}

TEST(Capture, ABufferTooSmallCountsWhatItDropped) {
  Capture capture({.host_buffer_bytes = 1}, {});
  capture.start();
  constexpr int kRanges = 30'000;
  for (int i = 0; i < kRanges; ++i) const Range range("step " + std::to_string(i));
  const Trace trace = capture.stop();
  const std::int64_t dropped = trace.processes().front().host_dropped.value_or(0);
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(static_cast<std::int64_t>(trace.events().size()) + dropped, kRanges);
}

TEST(Capture, ALongNameIsCutAndNothingBehindItIsHarmed) {
  Capture capture({}, {});
  capture.start();
  {
    const Range first(std::string(100'000, 'x'));
  }
  {
    const Range second("second");
  }
  const Trace trace = capture.stop();
  ASSERT_EQ(trace.events().size(), 2U);
  EXPECT_EQ(trace.name(trace.events()[0]).size(), 4096U);
  EXPECT_EQ(trace.name(trace.events()[1]), "stepscope:second");
}

TEST(Capture, ASecondOneIsRefusedAndTheFirstGoesOn) {
  Capture first({}, {});
  first.start();
  Capture second({}, {});
  EXPECT_THROW(second.start(), Error);
  EXPECT_THROW(second.stop(), Error);
  {
    const Range range("still");
  }
  EXPECT_EQ(first.stop().events().size(), 1U);
  second.start();
  EXPECT_TRUE(second.stop().events().empty());
}

/// A source that is told to fail.
class Source final : public CaptureSource {
 public:
  Source(bool fails, std::vector<std::string>& log) : fails_(fails), log_(log) {}
  std::string_view name() const override { return fails_ ? "bad" : "good"; }
  void start() override {
    if (fails_) throw Error("cannot record", "do not");
    log_.emplace_back("start");
  }
  void stop() override { log_.emplace_back("stop"); }
  void deliver(Trace& trace, std::uint32_t process) override {
    trace.add({.start_ns = 1, .end_ns = 2, .name = trace.intern("given"), .process = process});
  }

 private:
  bool fails_;
  std::vector<std::string>& log_;
};

TEST(Capture, ASourceThatCannotStartStopsTheOthers) {
  std::vector<std::string> log;
  std::vector<std::unique_ptr<CaptureSource>> sources;
  sources.push_back(std::make_unique<Source>(false, log));
  sources.push_back(std::make_unique<Source>(true, log));
  Capture capture({}, std::move(sources));
  EXPECT_THROW(capture.start(), Error);
  EXPECT_EQ(log, (std::vector<std::string>{"start", "stop"}));
  EXPECT_FALSE(HostRecorder::instance().recording());
  Capture next({}, {});
  next.start();
  EXPECT_TRUE(next.stop().events().empty());
}

TEST(Capture, SourcesAreNamedAndDeliver) {
  std::vector<std::string> log;
  std::vector<std::unique_ptr<CaptureSource>> sources;
  sources.push_back(std::make_unique<Source>(false, log));
  sources.push_back(std::make_unique<Source>(false, log));
  Capture capture({}, std::move(sources));
  capture.start();
  const Trace trace = capture.stop();
  EXPECT_EQ(trace.processes().front().source, "good+good");
  EXPECT_EQ(trace.events().size(), 2U);
}

TEST(Capture, ThreadsMayRecordWhileItStopsAndStarts) {
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!end.load()) const Range range("work");
    });
  }
  Capture capture({.host_buffer_bytes = 8 << 20}, {});
  for (int round = 0; round < 20; ++round) {
    capture.start();
    std::this_thread::yield();
    for (const Trace trace = capture.stop(); const Event& event : trace.events()) {
      ASSERT_EQ(trace.name(event), "stepscope:work");
    }
  }
  end = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace stepscope::tracer
