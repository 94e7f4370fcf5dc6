#include "tracer/step_contents.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tracer/collective_names.h"

namespace stepscope::tracer {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// What a name stands for, worked out once a name and not once an event.
struct NameClass {
  CollectiveKind kernel_collective = CollectiveKind::none;
  CollectiveKind host_collective = CollectiveKind::none;
  const UpdateRule* update_kernel = nullptr;
  const UpdateRule* update_operator = nullptr;
  std::int8_t layer = 0;  ///< of a host collective: a higher one calls a lower one
  bool launches = false;  ///< API calls
  bool launches_graph = false;
  bool copies = false;
  bool prefetches = false;  ///< moves managed memory; no record says where to
};

std::int8_t collective_layer(std::string_view name) {
  if (holds(name, "c10d_functional::")) return 3;
  if (name.starts_with("c10d::")) return 2;
  return name.starts_with("NCCL:") ? std::int8_t{0} : std::int8_t{1};
}

NameClass classify(std::string_view name) {
  NameClass result;
  result.kernel_collective = collective_of_kernel(name);
  result.host_collective = collective_of_host(name);
  result.layer = collective_layer(name);
  result.update_kernel = update_kernel(name);
  result.update_operator = update_operator(name);
  result.launches_graph = holds(name, "GraphLaunch");
  result.launches = result.launches_graph || holds(name, "LaunchKernel") ||
                    holds(name, "LaunchCooperativeKernel");
  result.copies = holds(name, "Memcpy");
  result.prefetches = holds(name, "MemPrefetch");
  return result;
}

/// The windows of one thread, ascending; events come in ascending order of their starts.
struct ThreadWindows {
  struct Entry {
    Window window;
    std::uint32_t step;
  };
  std::vector<Entry> entries;
  std::size_t next = 0;

  void sort() {
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return a.window.start_ns < b.window.start_ns;
    });
  }
  std::uint32_t at(std::int64_t time) {
    while (next < entries.size() && entries[next].window.end_ns < time) ++next;
    const bool found = next < entries.size() && entries[next].window.start_ns <= time;
    return found ? entries[next].step : kNone;
  }
};

}  // namespace

bool operator_crosses(const Trace& trace, const Event& event) {
  if (event.kind != EventKind::host_operator || event.detail == kNoDetail) return false;
  const std::string_view name = trace.name(event);
  const auto inputs = trace.inputs(event.detail);
  if (name == "aten::_local_scalar_dense") return !inputs.empty() && inputs[0].on_device;
  if (name != "aten::copy_" || inputs.size() < 2) return false;
  return inputs[0].on_device != inputs[1].on_device;
}

/// Deals out the events of one process.
class StepContents::Builder {
 public:
  Builder(StepContents& result, const std::vector<NameClass>& names, std::uint32_t process,
          std::uint32_t begin, std::uint32_t end)
      : result_(result),
        names_(names),
        events_(result.trace_.events()),
        facts_(result.facts_[process]),
        calls_(result.calls_[process]),
        begin_(begin),
        end_(end) {
    for (std::uint32_t i = 0; i < result.steps_.size(); ++i) {
      const Step& step = result.steps_[i];
      if (step.process != process) continue;
      ++facts_.steps;
      for (const Window& window : step.windows) {
        by_thread_[step.thread].entries.push_back({window, i});
        all_.entries.push_back({window, i});
      }
    }
    all_.sort();
    for (auto& [thread, windows] : by_thread_) windows.sort();
  }

  void run() {
    count_calls();
    for (std::uint32_t i = begin_; i < end_; ++i) add_host(i);
    // Stable: of two calls with one number the earlier is found.
    std::stable_sort(calls_.begin(), calls_.end(),
                     [](const Call& a, const Call& b) { return a.correlation < b.correlation; });
    facts_.by_time = facts_.device_events && !facts_.api_calls;
    all_.next = 0;
    for (std::uint32_t i = begin_; i < end_; ++i) add_device(i);
    for (const Launch& launch : launches_) {
      if (launch.joined) continue;
      InStep& step = result_.in_steps_[launch.step];
      (launch.copies ? step.copies_without_record : step.launches_without_kernel)
          .push_back(launch.event);
    }
  }

 private:
  /// An API call in a step from which a record must follow.
  struct Launch {
    std::uint32_t event;
    std::uint32_t step;
    bool copies;
    bool joined;
  };
  /// What a thread did last, so that what one thing calls is not counted a second time.
  struct ThreadState {
    std::uint32_t update = kNone;
    std::uint32_t collective = kNone;
    std::uint32_t launch = kNone;
    std::uint32_t launch_slot = kNone;
  };

  void count_calls() {
    std::size_t calls = 0;
    for (std::uint32_t i = begin_; i < end_; ++i) {
      const Event& event = events_[i];
      if (event.kind == EventKind::api_call) ++calls;
      if (event.device != kHost &&
          (event.kind == EventKind::kernel || event.kind == EventKind::copy)) {
        facts_.device_events = true;
      }
    }
    facts_.api_calls = calls > 0;
    calls_.reserve(calls);
  }

  std::uint32_t step_of(const Event& event) {
    if (event.thread == 0) return all_.at(event.start_ns);
    const auto own = by_thread_.find(event.thread);
    if (own != by_thread_.end()) return own->second.at(event.start_ns);
    const auto unknown = by_thread_.find(0);
    return unknown == by_thread_.end() ? kNone : unknown->second.at(event.start_ns);
  }

  bool within(std::uint32_t outer, const Event& event) const {
    return outer != kNone && event.start_ns >= events_[outer].start_ns &&
           event.end_ns <= events_[outer].end_ns;
  }

  /// Whether something that must not happen in a step happened in one's time on another thread.
  void add_meanwhile(std::uint32_t index, const Event& event) {
    if (by_thread_.count(event.thread) > 0) return;
    const std::uint32_t step = all_.at(event.start_ns);
    if (step == kNone || does_the_steps_own(event, result_.in_steps_[step])) return;
    result_.in_steps_[step].meanwhile.push_back(index);
  }

  /// Whether `event` is a back end's thread that does what the step's thread has called before: the
  /// same collective one layer down, once a call, which may have returned by then.
  bool does_the_steps_own(const Event& event, const InStep& in_step) {
    if (in_step.host_collectives.empty()) return false;
    const std::uint32_t latest = in_step.host_collectives.back();
    const NameClass& own = names_[events_[latest].name];
    const NameClass& other = names_[event.name];
    if (latest == done_elsewhere_ || other.host_collective == CollectiveKind::none ||
        other.host_collective != own.host_collective || other.layer >= own.layer) {
      return false;
    }
    done_elsewhere_ = latest;
    return true;
  }

  void add_host(std::uint32_t index) {
    const Event& event = events_[index];
    if (event.device != kHost) return;
    const NameClass& name = names_[event.name];
    const std::uint32_t step = step_of(event);
    InStep* const in_step = step == kNone ? nullptr : &result_.in_steps_[step];
    switch (event.kind) {
      case EventKind::api_call:
        add_call(index, event, name, step);
        break;
      case EventKind::host_operator:
      case EventKind::collective:
      case EventKind::range:
        add_operator(index, event, name, in_step);
        break;
      case EventKind::copy:
        facts_.host_activities = true;
        if (in_step != nullptr) in_step->copies.push_back(index);
        break;
      case EventKind::kernel:
      case EventKind::set:
      case EventKind::synchronization:
        break;
    }
    if (in_step != nullptr && event.kind != EventKind::range) ++in_step->activities;
  }

  void add_call(std::uint32_t index, const Event& event, const NameClass& name,
                std::uint32_t step) {
    std::uint32_t slot = kNone;
    if (name.prefetches && step != kNone) result_.in_steps_[step].copies.push_back(index);
    if (name.launches_graph) facts_.graph_launches = true;
    if (step != kNone && (name.launches || name.copies)) {
      ThreadState& thread = threads_[event.thread];
      if (within(thread.launch, event)) {
        slot = thread.launch_slot;  // the driver's call within the runtime's
      } else {
        slot = static_cast<std::uint32_t>(launches_.size());
        launches_.push_back({index, step, name.copies, false});
        thread.launch = index;
        thread.launch_slot = slot;
      }
    }
    calls_.push_back({event.correlation, index, slot});
  }

  void add_operator(std::uint32_t index, const Event& event, const NameClass& name,
                    InStep* in_step) {
    if (event.kind != EventKind::range) {
      facts_.host_activities = true;
      if (event.detail != kNoDetail && !facts_.device_tensors) {
        for (const TensorInput& input : result_.trace_.inputs(event.detail)) {
          facts_.device_tensors = facts_.device_tensors || input.on_device;
        }
      }
    }
    const bool collective =
        event.kind == EventKind::collective || name.host_collective != CollectiveKind::none;
    const bool update = event.kind == EventKind::host_operator && name.update_operator != nullptr;
    const bool crosses = operator_crosses(result_.trace_, event);
    if (!collective && !update && !crosses) return;
    if (in_step == nullptr) {
      add_meanwhile(index, event);
      return;
    }
    ThreadState& thread = threads_[event.thread];
    if (crosses) in_step->copies.push_back(index);
    if (update) add_update(index, event, thread, *in_step);
    if (collective) {
      // What a higher layer hands on may outlive it: only where it starts counts.
      const bool handed_on = thread.collective != kNone &&
                             event.start_ns <= events_[thread.collective].end_ns &&
                             name.layer < names_[events_[thread.collective].name].layer;
      if (!handed_on) {
        in_step->host_collectives.push_back(index);
        thread.collective = index;
      }
    }
  }

  /// An update within another is a part of it. Where a wrapper's operator (DTensor's) hands on to
  /// the operator of the same name, what that is handed is what is stepped.
  void add_update(std::uint32_t index, const Event& event, ThreadState& thread, InStep& in_step) {
    if (within(thread.update, event)) {
      if (event.name != events_[thread.update].name) return;
      std::erase(in_step.update_operators, thread.update);
    }
    in_step.update_operators.push_back(index);
    thread.update = index;
  }

  const Call* call_of(const Event& event) const {
    if (event.correlation == 0) return nullptr;
    const auto found = std::lower_bound(
        calls_.begin(), calls_.end(), event.correlation,
        [](const Call& call, std::uint64_t correlation) { return call.correlation < correlation; });
    return found == calls_.end() || found->correlation != event.correlation ? nullptr : &*found;
  }

  void add_device(std::uint32_t index) {
    const Event& event = events_[index];
    if (event.device == kHost) return;
    const bool is_kernel = event.kind == EventKind::kernel;
    if (is_kernel) ++facts_.kernels;
    if (!is_kernel && event.kind != EventKind::copy && event.kind != EventKind::set) return;
    const Call* const call = call_of(event);
    if (call == nullptr && !facts_.by_time) {
      add_unjoined(index, event);
      return;
    }
    if (call != nullptr && call->launch != kNone) launches_[call->launch].joined = true;
    const std::uint32_t step =
        call == nullptr ? all_.at(event.start_ns) : step_of_call(events_[call->event]);
    if (step == kNone) {
      if (call != nullptr) add_other_thread(index, event, events_[call->event]);
      return;
    }
    InStep& in_step = result_.in_steps_[step];
    ++in_step.activities;
    if (event.kind == EventKind::copy) in_step.copies.push_back(index);
    if (!is_kernel) return;
    const NameClass& name = names_[event.name];
    in_step.kernels.push_back(index);
    if (name.update_kernel != nullptr) in_step.update_kernels.push_back(index);
    if (kernel_collective(event, name)) in_step.device_collectives.push_back(index);
  }

  static bool kernel_collective(const Event& event, const NameClass& name) {
    return event.collective != CollectiveKind::none ||
           name.kernel_collective != CollectiveKind::none;
  }

  /// As step_of, but calls come in the order of what they started, so by bisection.
  std::uint32_t step_of_call(const Event& call) const {
    const ThreadWindows* windows = &all_;
    if (call.thread != 0) {
      auto own = by_thread_.find(call.thread);
      if (own == by_thread_.end()) own = by_thread_.find(0);
      if (own == by_thread_.end()) return kNone;
      windows = &own->second;
    }
    const auto& entries = windows->entries;
    const auto after = std::upper_bound(entries.begin(), entries.end(), call.start_ns,
                                        [](std::int64_t time, const ThreadWindows::Entry& entry) {
                                          return time < entry.window.start_ns;
                                        });
    if (after == entries.begin()) return kNone;
    const auto& entry = *std::prev(after);
    return call.start_ns <= entry.window.end_ns ? entry.step : kNone;
  }

  bool must_not_happen(const Event& event) const {
    return event.kind == EventKind::copy || names_[event.name].update_kernel != nullptr ||
           kernel_collective(event, names_[event.name]);
  }

  void add_other_thread(std::uint32_t index, const Event& event, const Event& call) {
    if (!must_not_happen(event) || by_thread_.count(call.thread) > 0) return;
    const std::uint32_t step = by_bisection(call.start_ns);
    if (step != kNone) result_.in_steps_[step].meanwhile.push_back(index);
  }

  std::uint32_t by_bisection(std::int64_t time) const {
    return step_of_call({.start_ns = time, .end_ns = time});
  }

  void add_unjoined(std::uint32_t index, const Event& event) {
    const std::uint32_t step = by_bisection(event.start_ns);
    if (event.kind == EventKind::kernel) {
      ++facts_.kernels_without_launch;
      if (!facts_.first_without_launch) facts_.first_without_launch = index;
      if (step != kNone) result_.in_steps_[step].kernels_without_launch.push_back(index);
    }
    if (step != kNone && must_not_happen(event)) result_.in_steps_[step].meanwhile.push_back(index);
  }

  StepContents& result_;
  const std::vector<NameClass>& names_;
  const std::vector<Event>& events_;
  ProcessFacts& facts_;
  std::vector<Call>& calls_;
  std::uint32_t begin_, end_;
  ThreadWindows all_;
  std::unordered_map<std::uint64_t, ThreadWindows> by_thread_;
  std::unordered_map<std::uint64_t, ThreadState> threads_;
  std::vector<Launch> launches_;
  std::uint32_t done_elsewhere_ = kNone;  ///< the last collective whose work another thread did
};

StepContents::StepContents(const Trace& trace, std::vector<Step> steps)
    : trace_(trace),
      steps_(std::move(steps)),
      in_steps_(steps_.size()),
      facts_(trace.processes().size()),
      calls_(trace.processes().size()) {
  std::vector<NameClass> names;
  names.reserve(trace.text_count());
  for (std::uint32_t i = 0; i < trace.text_count(); ++i) names.push_back(classify(trace.text(i)));
  const auto count = static_cast<std::uint32_t>(trace.events().size());
  for (std::uint32_t begin = 0; begin < count;) {
    const std::uint32_t process = trace.events()[begin].process;
    std::uint32_t end = begin;
    while (end < count && trace.events()[end].process == process) ++end;
    Builder(*this, names, process, begin, end).run();
    begin = end;
  }
}

std::optional<std::uint32_t> StepContents::host_side(std::uint32_t event) const {
  const Event& what = trace_.events().at(event);
  if (what.device == kHost) return event;
  const std::vector<Call>& calls = calls_.at(what.process);
  const auto found = std::lower_bound(
      calls.begin(), calls.end(), what.correlation,
      [](const Call& call, std::uint64_t correlation) { return call.correlation < correlation; });
  if (what.correlation == 0 || found == calls.end() || found->correlation != what.correlation) {
    return std::nullopt;
  }
  return found->event;
}

}  // namespace stepscope::tracer
