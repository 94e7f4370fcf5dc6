#pragma once

/// Purpose: what the host threads of this process do, as records in a RecordBuffer: operators with
/// the shapes of their tensors, collectives, copies, ranges; and their way into a Trace.
///
/// Usage: sources (record_function_source.h, range.h) write, while a Capture (capture.h) records:
///     HostRecord* record = recorder.begin({.kind = EventKind::range, .name = "step 3"}, epoch);
///     recorder.end(record, epoch);
///
/// Caveats: one recorder a process, which is never destroyed: an asynchronous operator may end
/// after everything else. A record costs 48 bytes, its name, and 24 bytes plus 8 a dimension for
/// each tensor.

#include <cstdint>
#include <span>
#include <string_view>

#include "tracer/record_buffer.h"
#include "tracer/trace.h"

namespace stepscope::tracer {

/// A tensor as a source sees it. `sizes` and `dtype` need to live during the call only and for
/// ever, respectively: dtype names are literals.
struct TensorView {
  std::span<const std::int64_t> sizes;
  std::string_view dtype;
  std::int32_t argument = 0;  ///< as TensorInput::argument
  bool on_device = false;     ///< likewise
};

/// What is known when something begins.
struct HostActivity {
  EventKind kind = EventKind::range;
  std::string_view name;
  std::int64_t value = kNoValue;
  ValueSource value_source = ValueSource::none;
  std::uint64_t correlation = 0;
  CopyDirection direction = CopyDirection::unknown;
  CollectiveKind collective = CollectiveKind::none;
  std::span<const TensorView> tensors = {};
};

struct HostRecord;  ///< in the buffer

class HostRecorder {
 public:
  /// The recorder of this process.
  static HostRecorder& instance();

  void start(std::size_t bytes);

  /// Afterwards nothing is written any more.
  void stop() noexcept;
  bool recording() const noexcept { return buffer_.recording(); }

  /// Something begins now on this thread. Null where nothing is recorded or there is no room.
  /// `epoch` is to be handed to end().
  HostRecord* begin(const HostActivity& activity, std::uint64_t& epoch) noexcept;

  /// It ends now; any thread. Ignored where `record` is null or recording has started anew since.
  void end(HostRecord* record, std::uint64_t epoch) noexcept;

  /// Something whose times are known.
  void add(const HostActivity& activity, std::int64_t start_ns, std::int64_t end_ns) noexcept;

  /// Records that found no room.
  std::int64_t dropped() const noexcept { return buffer_.dropped(); }

  /// Adds all records to `trace` as events of `process`. What has not ended ends at stop(). After
  /// stop() only.
  void deliver(Trace& trace, std::uint32_t process);

 private:
  HostRecorder() = default;
  HostRecord* write(const RecordBuffer::Writer& writer, const HostActivity& activity,
                    std::int64_t start_ns, std::int64_t end_ns) noexcept;

  RecordBuffer buffer_;
  std::int64_t stop_ns_ = 0;
};

}  // namespace stepscope::tracer
