#pragma once

/// Purpose: what one or more sources recorded: events, their names and details, the processes
/// (ranks) they come from, and how much is missing.
///
/// Usage:
///     Trace trace;
///     const auto rank0 = trace.add_process({.rank = 0, .pid = 4711});
///     Event event{.start_ns = 10, .end_ns = 20, .name = trace.intern("step 0"), .process = rank0};
///     trace.add(event);
///
/// Caveats: not for several threads at once: a source gathers in buffers of its own and fills the
/// Trace after the step. Times of two processes share a clock only where both have a
/// wall_clock_offset_ns (or come from one file).

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tracer/event.h"

namespace stepscope::tracer {

/// A kernel's launch configuration, in blocks and threads.
struct Launch {
  std::array<std::int64_t, 3> grid = {1, 1, 1};
  std::array<std::int64_t, 3> block = {1, 1, 1};
  std::int64_t static_shared_bytes = 0;
  std::int64_t dynamic_shared_bytes = 0;
  std::int32_t registers_per_thread = 0;
  bool operator==(const Launch&) const = default;
};

/// One tensor that an operator or collective was handed.
struct TensorInput {
  std::vector<std::int64_t> shape = {};  ///< empty: a scalar tensor
  std::string dtype = {};                ///< as the source names it, for example "float"
  /// Place of the operator's argument that holds it, counted over all arguments, tensors or not;
  /// the tensors of one list share it. This tells parameters from gradients and moments.
  std::int32_t argument = 0;
  bool on_device = false;      ///< not in the memory of the CPU, where the source says so
  std::int64_t numel() const;  ///< product of the shape; 1 for a scalar
  bool operator==(const TensorInput&) const = default;
};

/// One process that was traced, and what its source knows of losses.
struct Process {
  std::optional<std::int64_t> rank = {};
  std::optional<std::int64_t> world_size = {};
  std::int64_t pid = 0;
  std::string source = {};  ///< "cupti", "record-function", "nvtx", "nsys", "kineto"
  std::string file = {};    ///< where it was read from; empty when recorded in this process
  /// Nanoseconds to add to the trace clock for the wall clock (UTC since 1970), where known.
  std::optional<std::int64_t> wall_clock_offset_ns = {};
  /// Device activities the source says it lost; nothing where it cannot say (then
  /// complete-trace is unverified, never ok).
  std::optional<std::int64_t> dropped = {};
  /// Kernel launches the source counted by callbacks, whether or not a record came; nothing where
  /// it counts none.
  std::optional<std::int64_t> launched = {};
  /// Host activities (operators, ranges, collectives) that found no room; nothing where the source
  /// cannot say.
  std::optional<std::int64_t> host_dropped = {};
};

/// Records that are left out of every sum, by reason (cases E3 and E6).
struct Health {
  std::int64_t without_time = 0;  ///< start and end both 0
  std::int64_t negative_duration = 0;
  std::int64_t impossible_duration = 0;  ///< longer than a day
  std::int64_t duplicates = 0;           ///< same kind, correlation, device and times twice
  std::int64_t total() const {
    return without_time + negative_duration + impossible_duration + duplicates;
  }

  /// Adds what a file says of itself; false, and nothing to rely on, where no file can mean it:
  /// below zero, or beyond 64 bits in all.
  [[nodiscard]] bool add(std::int64_t Health::* count, std::int64_t value) {
    return value >= 0 && !__builtin_add_overflow(this->*count, value, &(this->*count));
  }
};

/// The counts of Health, by the names and in the order that files and reports give them.
struct HealthCount {
  std::string_view name;
  std::int64_t Health::* count;
};
inline constexpr std::array<HealthCount, 4> kHealthCounts = {{
    {"without_time", &Health::without_time},
    {"negative_duration", &Health::negative_duration},
    {"impossible_duration", &Health::impossible_duration},
    {"duplicates", &Health::duplicates},
}};

class Trace {
 public:
  Trace();

  std::uint32_t add_process(Process process);
  const std::vector<Process>& processes() const noexcept { return processes_; }
  Process& process(std::uint32_t index) { return processes_.at(index); }

  /// The number of `text`, the same for equal texts; 0 is the empty text.
  std::uint32_t intern(std::string_view text);
  std::string_view text(std::uint32_t number) const { return texts_.at(number); }
  std::size_t text_count() const noexcept { return texts_.size(); }
  std::string_view name(const Event& event) const { return text(event.name); }

  /// Equal launches get one number: a step launches the same kernels again and again.
  std::uint32_t add_launch(const Launch& launch);
  const Launch& launch(std::uint32_t detail) const { return launches_.at(detail); }

  /// Equal lists get one number.
  std::uint32_t add_inputs(std::vector<TensorInput> inputs);
  std::span<const TensorInput> inputs(std::uint32_t detail) const { return inputs_.at(detail); }

  /// Keeps `event`, unless its times are impossible: then it is counted in health() and left out.
  void add(const Event& event);
  void reserve(std::size_t events) { events_.reserve(events); }

  /// Adds `ns` to every time of a process, and takes it off its wall-clock offset. Throws Error
  /// where a time would leave 64 bits; finish() must follow.
  void shift(std::uint32_t process, std::int64_t ns);

  /// Sorts by process, then start, then longer first (so that a range comes before what it holds),
  /// and takes out duplicates. To be called once after the last add.
  void finish();

  const std::vector<Event>& events() const noexcept { return events_; }
  const Health& health() const noexcept { return health_; }
  Health& health() noexcept { return health_; }

 private:
  std::vector<Event> events_;
  std::vector<Process> processes_;
  std::deque<std::string> texts_;  ///< never move, so that the index may hold views
  std::unordered_map<std::string_view, std::uint32_t> text_index_;
  std::vector<Launch> launches_;
  std::vector<std::vector<TensorInput>> inputs_;
  std::unordered_multimap<std::size_t, std::uint32_t> launch_index_;  ///< by hash
  std::unordered_multimap<std::size_t, std::uint32_t> inputs_index_;  ///< by hash
  Health health_;
};

}  // namespace stepscope::tracer
