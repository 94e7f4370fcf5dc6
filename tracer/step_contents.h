#pragma once

/// Purpose: what happened in each step: the events of a trace, dealt out to the steps they belong
/// to, and what each process' source was able to see at all.
///
/// Usage:
///     const StepContents contents(trace, find_steps(trace, {}));
///     for (std::size_t i = 0; i < contents.steps().size(); ++i) use(contents.in_step(i));
///
/// What runs on a device belongs to the step whose range holds its API call, found by correlation;
/// what runs on the host to the step of its own thread. Kernels of a step may run after it.
///
/// Caveats: a process without any recorded API call has its device events dealt out by their own
/// times (ProcessFacts::by_time), which proves nothing. Events are given as indices into
/// Trace::events(); the trace must outlive this and stay as it is.

#include <cstdint>
#include <optional>
#include <vector>

#include "tracer/step_ranges.h"
#include "tracer/trace.h"
#include "tracer/update_names.h"

namespace stepscope::tracer {

using EventIndices = std::vector<std::uint32_t>;

struct InStep {
  EventIndices kernels;             ///< all of them
  EventIndices update_kernels;      ///< those that update_names.h knows, norm_only included
  EventIndices update_operators;    ///< likewise; of one within another the outer one, but of one
                                    ///< within its like the inner one
  EventIndices host_collectives;    ///< as issued; what one layer hands to the next counts once
  EventIndices device_collectives;  ///< kernels
  EventIndices copies;              ///< on a device or said by an operator
  EventIndices launches_without_kernel;  ///< API calls
  EventIndices copies_without_record;    ///< API calls that copy, of which no copy is recorded
  EventIndices kernels_without_launch;   ///< ran in the step's time, started by no recorded call
  /// Collectives, copies and updates of other threads, or without a call, in the step's time.
  EventIndices meanwhile;
  std::int64_t activities = 0;  ///< everything but ranges
};

/// What a process' part of the trace can show.
struct ProcessFacts {
  std::int64_t steps = 0;
  std::int64_t kernels = 0;
  std::int64_t kernels_without_launch = 0;
  std::optional<std::uint32_t> first_without_launch = {};
  bool device_events = false;  ///< any kernel or copy on a device
  bool api_calls = false;
  bool graph_launches = false;  ///< one call starts many kernels
  bool host_activities = false;
  bool device_tensors = false;  ///< an operator was handed a tensor that is on a device
  bool by_time = false;
};

class StepContents {
 public:
  StepContents(const Trace& trace, std::vector<Step> steps);

  const std::vector<Step>& steps() const noexcept { return steps_; }
  const InStep& in_step(std::size_t step) const { return in_steps_.at(step); }
  const ProcessFacts& process(std::uint32_t process) const { return facts_.at(process); }

  /// The event on the host that caused `event`: the API call that started a kernel or copy; itself
  /// where it is on the host; nothing where the call is not recorded.
  std::optional<std::uint32_t> host_side(std::uint32_t event) const;

 private:
  class Builder;

  /// An API call that may have started something.
  struct Call {
    std::uint64_t correlation;
    std::uint32_t event;
    std::uint32_t launch;  ///< index into the builder's list of launches and copies of steps
  };

  const Trace& trace_;
  std::vector<Step> steps_;
  std::vector<InStep> in_steps_;
  std::vector<ProcessFacts> facts_;       ///< by process
  std::vector<std::vector<Call>> calls_;  ///< by process, ascending in correlation
};

/// Whether the operator `event` moves its tensor between host and device, as far as its inputs say:
/// aten::copy_ with one side on a device, or a scalar that is read from one.
bool operator_crosses(const Trace& trace, const Event& event);

}  // namespace stepscope::tracer
