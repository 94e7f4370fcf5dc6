#include "tracer/range_path.h"

#include <string_view>

namespace stepscope::tracer {
namespace {

constexpr std::size_t kLongest = 6;
constexpr std::string_view kDomain = "stepscope:";

using Open = std::vector<std::uint32_t>;

/// The name of a range of ours without its domain; an operator's, "stepscope::...", has none.
std::string_view shown(std::string_view name) {
  const bool own =
      name.size() > kDomain.size() && name.starts_with(kDomain) && name[kDomain.size()] != ':';
  return own ? name.substr(kDomain.size()) : name;
}

std::string path(const Trace& trace, const Open& open, const Event& event) {
  std::vector<std::string_view> names;
  for (auto i = open.rbegin(); i != open.rend() && names.size() < kLongest; ++i) {
    const Event& around = trace.events()[*i];
    if (around.end_ns < event.start_ns) continue;
    names.push_back(shown(trace.name(around)));
  }
  std::string text;
  for (auto i = names.rbegin(); i != names.rend(); ++i) {
    text.append(text.empty() ? "" : " > ").append(*i);
  }
  return text;
}

}  // namespace

RangePaths range_paths(const Trace& trace, const std::vector<std::uint32_t>& events) {
  RangePaths paths;
  if (events.empty()) return paths;
  std::unordered_map<std::uint64_t, Open> by_thread;
  std::uint32_t process = 0;
  std::size_t next = 0;
  for (std::uint32_t i = 0; i <= events.back(); ++i) {
    const Event& event = trace.events().at(i);
    if (event.process != process) by_thread.clear();
    process = event.process;
    const bool asked = i == events[next];
    const bool opens = event.device == kHost &&
                       (event.kind == EventKind::range || event.kind == EventKind::host_operator);
    if (!asked && !opens) continue;
    Open& open = by_thread[event.thread];
    while (!open.empty() && trace.events()[open.back()].end_ns < event.start_ns) open.pop_back();
    if (asked) paths[i] = path(trace, open, event);
    while (next < events.size() && events[next] == i) ++next;
    if (opens) open.push_back(i);
  }
  return paths;
}

}  // namespace stepscope::tracer
