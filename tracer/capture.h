#pragma once

/// Purpose: records what this process does between two points, and hands it out as a Trace.
///
/// Usage:
///     Capture capture({.rank = 0, .world_size = 2}, sources);   // takes memory
///     capture.start();
///     { const Range step("step 0"); optimizer.step(); }
///     const Trace trace = capture.stop();                       // all the work is here
///
/// Caveats: one capture at a time in a process. Between start() and stop() nothing is written and
/// memory is bounded; what finds no room is counted (Process::host_dropped, Process::dropped).
/// Recording costs time: leave timed steps unrecorded.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tracer/capture_source.h"
#include "tracer/trace.h"

namespace stepscope::tracer {

struct CaptureOptions {
  std::optional<std::int64_t> rank = {};
  std::optional<std::int64_t> world_size = {};
  std::size_t host_buffer_bytes = std::size_t{64} << 20;  ///< of all threads together
};

class Capture {
 public:
  /// Ranges (range.h) are always recorded; everything else comes from `sources`.
  Capture(const CaptureOptions& options, std::vector<std::unique_ptr<CaptureSource>> sources);

  /// Stops, and forgets what was recorded.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Throws Error where another capture runs in this process or a source cannot record; then none
  /// does.
  void start();
  bool running() const noexcept { return running_; }

  /// What was recorded since start(), sorted (Trace::finish), with one process: this one. Throws
  /// Error where the capture does not run.
  Trace stop();

 private:
  void stop_sources(std::size_t count) noexcept;

  CaptureOptions options_;
  std::vector<std::unique_ptr<CaptureSource>> sources_;
  bool running_ = false;
};

}  // namespace stepscope::tracer
