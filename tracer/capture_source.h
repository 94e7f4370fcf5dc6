#pragma once

/// Purpose: something that can be recorded while a Capture (capture.h) runs: libtorch's operators,
/// a GPU's activities.
///
/// Usage: implement it, and hand it to a Capture.

#include <cstdint>
#include <string_view>

#include "tracer/trace.h"

namespace stepscope::tracer {

class CaptureSource {
 public:
  virtual ~CaptureSource() = default;

  /// As in Process::source, for example "record-function".
  virtual std::string_view name() const = 0;

  /// Starts to record. The HostRecorder records already. Throws Error where it cannot.
  virtual void start() = 0;

  /// Records no longer when it returns. The HostRecorder still records.
  virtual void stop() = 0;

  /// Adds what it recorded to `trace` as events of `process`, and what it lost to the process; what
  /// stands in the HostRecorder is added elsewhere. Called once after stop().
  virtual void deliver(Trace& trace, std::uint32_t process) = 0;
};

}  // namespace stepscope::tracer
