#pragma once

/// Purpose: the one recording of a process that libstepscope_tracer.so is loaded into: who may ask
/// for it is the C interface (tracer_library.h) and the injection into processes.
///
/// Usage:
///     ProcessTracer::instance().start("torch", 0);
///     ...
///     ProcessTracer::instance().stop();
///     ProcessTracer::instance().write("rank%r.sqlite");
///
/// Caveats: any thread; calls wait for each other. Our own programs use Capture (capture.h).

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tracer/capture.h"
#include "tracer/trace.h"

namespace stepscope::tracer {

class ProcessTracer {
 public:
  /// Never destroyed: threads may outlive everything.
  static ProcessTracer& instance();

  /// Throws Error where it is not 0 <= rank < world_size.
  void set_rank(std::int64_t rank, std::int64_t world_size);

  /// As stepscope_tracer_start(). Throws Error where a recording runs, a source is not known or
  /// cannot record.
  void start(std::string_view sources, std::int64_t host_buffer_bytes);

  /// Throws Error where nothing is being recorded.
  void stop();

  /// Throws Error where nothing was recorded or the file cannot be written.
  void write(std::string_view pattern);

 private:
  ProcessTracer() = default;
  std::optional<std::int64_t> rank() const;
  std::optional<std::int64_t> world_size() const;

  std::mutex mutex_;
  std::optional<std::int64_t> rank_;
  std::optional<std::int64_t> world_size_;
  std::unique_ptr<Capture> capture_;
  std::unique_ptr<Trace> trace_;
};

}  // namespace stepscope::tracer
