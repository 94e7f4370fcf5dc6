#include "tracer/trace.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "tracer/sort_runs.h"

namespace stepscope::tracer {
namespace {

/// No event of a step lasts a day; what says so carries garbage.
constexpr std::int64_t kLongestNs = std::int64_t{24} * 3600 * 1'000'000'000;

template <typename T>
std::uint32_t next_number(const T& kept, const char* what) {
  if (kept.size() >= kNoDetail) {
    throw Error(std::string("the trace has more than ") + std::to_string(kNoDetail) + " " + what,
                "record fewer steps");
  }
  return static_cast<std::uint32_t>(kept.size());
}

void mix(std::size_t& hash, std::size_t value) {
  hash ^= value + 0x9e3779b97f4a7c15U + (hash << 6) + (hash >> 2);
}

void mix(std::size_t& hash, std::int64_t value) { mix(hash, static_cast<std::size_t>(value)); }

std::size_t hash_of(const Launch& launch) {
  std::size_t hash = 0;
  for (const std::int64_t extent : launch.grid) mix(hash, extent);
  for (const std::int64_t extent : launch.block) mix(hash, extent);
  mix(hash, launch.static_shared_bytes);
  mix(hash, launch.dynamic_shared_bytes);
  mix(hash, std::int64_t{launch.registers_per_thread});
  return hash;
}

std::size_t hash_of(const std::vector<TensorInput>& inputs) {
  std::size_t hash = inputs.size();
  for (const TensorInput& input : inputs) {
    for (const std::int64_t extent : input.shape) mix(hash, extent);
    mix(hash, std::hash<std::string>()(input.dtype));
    mix(hash, std::int64_t{input.argument} * 2 + (input.on_device ? 1 : 0));
  }
  return hash;
}

/// The number of `value` in `kept`, where it is added unless an equal one stands there.
template <typename T>
std::uint32_t kept_number(std::vector<T>& kept,
                          std::unordered_multimap<std::size_t, std::uint32_t>& index, T value,
                          std::size_t hash, const char* what) {
  const auto [first, last] = index.equal_range(hash);
  for (auto found = first; found != last; ++found) {
    if (kept[found->second] == value) return found->second;
  }
  const auto number = next_number(kept, what);
  kept.push_back(std::move(value));
  index.emplace(hash, number);
  return number;
}

/// What two records of one activity have in common.
auto identity(const Event& event) {
  return std::tie(event.process, event.start_ns, event.end_ns, event.kind, event.device,
                  event.stream, event.thread, event.correlation, event.name);
}

}  // namespace

std::int64_t TensorInput::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(product, extent, &product)) return kNoValue;
  }
  return product;
}

Trace::Trace() { intern(""); }

std::uint32_t Trace::add_process(Process process) {
  const auto number = next_number(processes_, "processes");
  processes_.push_back(std::move(process));
  return number;
}

std::uint32_t Trace::intern(std::string_view text) {
  const auto found = text_index_.find(text);
  if (found != text_index_.end()) return found->second;
  const auto number = next_number(texts_, "names");
  texts_.emplace_back(text);
  text_index_.emplace(texts_.back(), number);
  return number;
}

std::uint32_t Trace::add_launch(const Launch& launch) {
  return kept_number(launches_, launch_index_, launch, hash_of(launch), "launches");
}

std::uint32_t Trace::add_inputs(std::vector<TensorInput> inputs) {
  const std::size_t hash = hash_of(inputs);
  return kept_number(inputs_, inputs_index_, std::move(inputs), hash, "operators with inputs");
}

void Trace::shift(std::uint32_t process, std::int64_t ns) {
  bool fits = true;
  for (Event& event : events_) {
    if (event.process != process) continue;
    fits &= !__builtin_add_overflow(event.start_ns, ns, &event.start_ns);
    fits &= !__builtin_add_overflow(event.end_ns, ns, &event.end_ns);
  }
  auto& offset = processes_.at(process).wall_clock_offset_ns;
  if (offset) fits &= !__builtin_sub_overflow(*offset, ns, &*offset);
  if (!fits) {
    throw Error("the clocks of two traces are " + std::to_string(ns) + " ns apart",
                "read files of the same job", {.file = processes_[process].file});
  }
}

void Trace::add(const Event& event) {
  std::int64_t duration = 0;
  if (event.start_ns == 0 && event.end_ns == 0) {
    ++health_.without_time;
  } else if (event.end_ns < event.start_ns) {
    ++health_.negative_duration;
  } else if (__builtin_sub_overflow(event.end_ns, event.start_ns, &duration) ||
             duration > kLongestNs) {
    ++health_.impossible_duration;
  } else {
    events_.push_back(event);
  }
}

void Trace::finish() {
  const auto before = [](const Event& a, const Event& b) {
    if (a.process != b.process) return a.process < b.process;
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    if (a.end_ns != b.end_ns) return a.end_ns > b.end_ns;
    return identity(a) < identity(b);
  };
  // Sources and files hand events over in sorted runs, one a buffer or table. A sixteenth of the
  // memory that they fill is enough for merging them.
  const auto room = std::max<std::ptrdiff_t>(std::ssize(events_) / 16, 1);
  sort_runs(events_.begin(), events_.end(), before, room);
  // Only activities with a correlation can be told apart: two equal marks may both have happened.
  const auto same = [](const Event& a, const Event& b) {
    return a.correlation != 0 && identity(a) == identity(b);
  };
  const auto last = std::unique(events_.begin(), events_.end(), same);
  health_.duplicates += std::distance(last, events_.end());
  events_.erase(last, events_.end());
}

}  // namespace stepscope::tracer
