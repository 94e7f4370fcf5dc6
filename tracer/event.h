#pragma once

/// Purpose: the one event that every source fills and every contract and exporter reads: something
/// that happened between two times on one rank, on a device's stream or on a host thread.
///
/// Usage: events live in a Trace (trace.h), which owns their names and details.
///
/// Caveats: times are whole nanoseconds on the trace's clock and never go through a floating-point
/// number. An event is a plain 72-byte value, so that ten million fit into memory; what only some
/// kinds have (a launch's grid, an operator's inputs) stands in the Trace and is found by `detail`.

#include <cstdint>
#include <string_view>

namespace stepscope::tracer {

enum class EventKind : std::uint8_t {
  kernel,           ///< on a device; value = n, the elements it was told to process
  copy,             ///< on a device or the host; value = bytes
  set,              ///< memory set on a device; value = bytes
  synchronization,  ///< a host thread or stream that waits for a device
  api_call,         ///< a call of the CUDA runtime or driver, on a host thread
  collective,       ///< as the host issued it (c10d); value = bytes this rank hands in
  host_operator,    ///< an operator of libtorch; value = elements of its first input
  range,            ///< an annotation: an NVTX range or a RecordFunction scope that a user named
};

/// "kernel", "copy", ...: as in DESIGN's words and in the JSON files.
std::string_view event_kind_name(EventKind kind);

enum class CopyDirection : std::uint8_t {
  unknown,
  host_to_device,
  device_to_host,
  device_to_device,
  host_to_host,
  peer_to_peer,
};
std::string_view copy_direction_name(CopyDirection direction);

/// What a collective does; also known for device kernels whose name says it (ncclDevKernel_...).
enum class CollectiveKind : std::uint8_t {
  none,  ///< not a collective
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  barrier,
  send_receive,
  other,  ///< a collective whose name is not known
};
std::string_view collective_kind_name(CollectiveKind kind);

/// Where a kernel's or operator's `value` (n) comes from.
enum class ValueSource : std::uint8_t {
  none,        ///< there is none
  exact,       ///< read from the launch's parameters, from input shapes, or recorded by a source
  grid_bound,  ///< only the grid is known: n lies in ((grid-1)*elements per block, grid*...]
};

inline constexpr std::int64_t kNoValue = -1;
inline constexpr std::uint32_t kNoDetail = 0xffffffffU;
inline constexpr std::int32_t kHost = -1;  ///< `device` of what runs on a host thread

struct Event {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;           ///< below start_ns in an impossible record (Trace::health)
  std::int64_t value = kNoValue;     ///< by kind, above; kNoValue where it is not known
  std::uint64_t correlation = 0;     ///< joins an API call with what it started; 0: none
  std::uint64_t thread = 0;          ///< host thread that did or issued it; 0: not known
  std::uint64_t stream = 0;          ///< of `device`; 0 is the default stream
  std::uint32_t name = 0;            ///< Trace::text()
  std::uint32_t detail = kNoDetail;  ///< kernel: Trace::launch(); on the host else: inputs()
  std::int32_t device = kHost;
  std::uint32_t process = 0;  ///< index into Trace::processes(): a rank's process
  EventKind kind = EventKind::range;
  CopyDirection direction = CopyDirection::unknown;  ///< of copies
  CollectiveKind collective = CollectiveKind::none;
  ValueSource value_source = ValueSource::none;

  std::int64_t duration_ns() const { return end_ns - start_ns; }
};
static_assert(sizeof(Event) == 72);

}  // namespace stepscope::tracer
