#include "tracer/step_ranges.h"

#include <regex.h>

#include <array>
#include <string_view>
#include <unordered_map>

#include "core/error.h"

namespace stepscope::tracer {
namespace {

constexpr std::string_view kDomain = "stepscope:";
constexpr std::string_view kOurStep = "stepscope:step ";
constexpr std::string_view kOptimizerPhase = "stepscope:phase optimizer";

class Pattern {
 public:
  explicit Pattern(const std::string& text) {
    const int code = regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_NOSUB);
    if (code == 0) return;
    std::array<char, 128> reason{};
    regerror(code, &compiled_, reason.data(), reason.size());
    throw Error("\"" + text + "\" is no regular expression: " + reason.data(),
                "write a POSIX extended one, such as '^train step'");
  }
  ~Pattern() { regfree(&compiled_); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  bool found_in(const std::string& name) const {
    return regexec(&compiled_, name.c_str(), 0, nullptr, 0) == 0;
  }

 private:
  regex_t compiled_{};
};

enum class Role : std::uint8_t { none, our_step, torch_step, phase, asked_for };

/// By Trace::text() number.
std::vector<Role> roles(const Trace& trace, const StepOptions& options) {
  std::optional<Pattern> pattern;
  if (options.pattern) pattern.emplace(*options.pattern);
  std::vector<Role> roles(trace.text_count(), Role::none);
  for (std::uint32_t i = 0; i < roles.size(); ++i) {
    const std::string_view name = trace.text(i);
    if (name == kOptimizerPhase) {
      roles[i] = Role::phase;
    } else if (pattern) {
      if (pattern->found_in(std::string(name))) roles[i] = Role::asked_for;
    } else if (name.starts_with(kOurStep)) {
      roles[i] = Role::our_step;
    } else if (name.starts_with("Optimizer.step#") && name.ends_with(".step")) {
      roles[i] = Role::torch_step;
    }
  }
  return roles;
}

std::string label(std::string_view name) {
  if (name.starts_with(kDomain)) name.remove_prefix(kDomain.size());
  return std::string(name);
}

bool can_mark(const Event& event) {
  return event.device == kHost &&
         (event.kind == EventKind::range || event.kind == EventKind::host_operator);
}

/// The steps of one process, whose events are [begin, end).
void add_steps(const Trace& trace, const std::vector<Role>& roles, const Event* begin,
               const Event* end, std::vector<Step>& steps) {
  bool ours = false;
  for (const Event* event = begin; event != end && !ours; ++event) {
    ours = can_mark(*event) && roles[event->name] == Role::our_step;
  }
  /// The last step of each thread: index into `steps`, its end, and whether it has phases.
  struct Last {
    std::size_t step;
    std::int64_t end_ns;
    bool phases;
  };
  std::unordered_map<std::uint64_t, Last> last;
  std::int64_t ordinal = 0;
  for (const Event* event = begin; event != end; ++event) {
    const Role role = roles[event->name];
    if (role == Role::none || !can_mark(*event)) continue;
    const auto found = last.find(event->thread);
    const bool inside = found != last.end() && event->start_ns <= found->second.end_ns &&
                        event->end_ns <= found->second.end_ns;
    if (role == Role::phase) {
      if (!inside) continue;
      std::vector<Window>& windows = steps[found->second.step].windows;
      if (!found->second.phases) windows.clear();
      found->second.phases = true;
      windows.push_back({event->start_ns, event->end_ns});
      continue;
    }
    if (inside || (role == Role::torch_step && ours)) continue;
    last[event->thread] = {steps.size(), event->end_ns, false};
    steps.push_back({.process = event->process,
                     .thread = event->thread,
                     .ordinal = ordinal++,
                     .label = label(trace.name(*event)),
                     .windows = {{event->start_ns, event->end_ns}}});
  }
}

}  // namespace

std::vector<Step> find_steps(const Trace& trace, const StepOptions& options) {
  const std::vector<Role> role_of = roles(trace, options);
  std::vector<Step> steps;
  const Event* const end = trace.events().data() + trace.events().size();
  for (const Event* begin = trace.events().data(); begin != end;) {
    const Event* next = begin;
    while (next != end && next->process == begin->process) ++next;
    add_steps(trace, role_of, begin, next, steps);
    begin = next;
  }
  return steps;
}

}  // namespace stepscope::tracer
