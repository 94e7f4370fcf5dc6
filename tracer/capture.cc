#include "tracer/capture.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>

#include "core/error.h"
#include "tracer/host_recorder.h"

namespace stepscope::tracer {
namespace {

std::atomic<bool> one_is_running{false};

/// Nanoseconds from the trace's clock to the wall clock. The wall clock is read between two
/// readings of the other, so that an interruption is seen and tried again.
std::int64_t wall_clock_offset_ns() {
  std::int64_t best = 0;
  std::int64_t narrowest = -1;
  for (int i = 0; i < 5; ++i) {
    const std::int64_t before = trace_clock_ns();
    timespec wall{};
    clock_gettime(CLOCK_REALTIME, &wall);
    const std::int64_t after = trace_clock_ns();
    if (narrowest >= 0 && after - before >= narrowest) continue;
    narrowest = after - before;
    best = std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec - before - narrowest / 2;
  }
  return best;
}

}  // namespace

Capture::Capture(const CaptureOptions& options, std::vector<std::unique_ptr<CaptureSource>> sources)
    : options_(options), sources_(std::move(sources)) {}

Capture::~Capture() {
  if (!running_) return;
  stop_sources(sources_.size());
  HostRecorder::instance().stop();
  one_is_running = false;
}

void Capture::stop_sources(std::size_t count) noexcept {
  for (std::size_t i = count; i > 0; --i) sources_[i - 1]->stop();
}

void Capture::start() {
  if (one_is_running.exchange(true)) {
    throw Error("a capture runs already in this process", "stop it first");
  }
  std::size_t started = 0;
  try {
    HostRecorder::instance().start(options_.host_buffer_bytes);
    for (; started < sources_.size(); ++started) sources_[started]->start();
  } catch (...) {
    stop_sources(started);
    HostRecorder::instance().stop();
    one_is_running = false;
    throw;
  }
  running_ = true;
}

Trace Capture::stop() {
  if (!running_) throw Error("no capture runs that could be stopped", "start it first");
  HostRecorder& host = HostRecorder::instance();
  stop_sources(sources_.size());
  host.stop();
  running_ = false;
  // Until all is taken out, no other capture may start and reuse the memory.
  struct Release {
    ~Release() { one_is_running = false; }
  } const release;

  Trace trace;
  Process process{.rank = options_.rank,
                  .world_size = options_.world_size,
                  .pid = getpid(),
                  .wall_clock_offset_ns = wall_clock_offset_ns(),
                  .host_dropped = host.dropped()};
  for (const auto& source : sources_) {
    if (!process.source.empty()) process.source += '+';
    process.source += source->name();
  }
  const std::uint32_t number = trace.add_process(std::move(process));
  host.deliver(trace, number);
  for (const auto& source : sources_) source->deliver(trace, number);
  trace.finish();
  return trace;
}

}  // namespace stepscope::tracer
