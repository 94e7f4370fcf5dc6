#include "tracer/trace.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/error.h"

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
  const auto number = next_number(launches_, "launches");
  launches_.push_back(launch);
  return number;
}

std::uint32_t Trace::add_inputs(std::vector<TensorInput> inputs) {
  const auto number = next_number(inputs_, "operators with inputs");
  inputs_.push_back(std::move(inputs));
  return number;
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
  std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    if (a.process != b.process) return a.process < b.process;
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    if (a.end_ns != b.end_ns) return a.end_ns > b.end_ns;
    return identity(a) < identity(b);
  });
  // Only activities with a correlation can be told apart: two equal marks may both have happened.
  const auto same = [](const Event& a, const Event& b) {
    return a.correlation != 0 && identity(a) == identity(b);
  };
  const auto last = std::unique(events_.begin(), events_.end(), same);
  health_.duplicates += std::distance(last, events_.end());
  events_.erase(last, events_.end());
}

}  // namespace stepscope::tracer
