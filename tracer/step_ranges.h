#pragma once

/// Purpose: where the steps of a trace are: the ranges that mark them, and within each the part
/// that contracts look at.
///
/// Usage:
///     for (const Step& step : find_steps(trace, {})) ... step.windows
///
/// A step is a range "stepscope:step <N>"; in a process without any, one of PyTorch's own
/// "Optimizer.step#<class>.step". Where a step of ours holds ranges "stepscope:phase optimizer",
/// only those are looked at: forward and backward may gather. A pattern replaces both names.
///
/// Caveats: ranges must lie on a host thread; what PyTorch mirrors onto the device is no step. A
/// range within a step of the same thread is no step of its own.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tracer/trace.h"

namespace stepscope::tracer {

/// A stretch of one host thread, both ends included.
struct Window {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
};

struct Step {
  std::uint32_t process = 0;  ///< index into Trace::processes()
  std::uint64_t thread = 0;   ///< 0: not known; then every thread counts
  std::int64_t ordinal = 0;   ///< place among the steps of its process, from 0
  std::string label;          ///< the range's name, without "stepscope:"
  std::vector<Window> windows;
};

struct StepOptions {
  /// POSIX extended regular expression, found anywhere in a range's name.
  std::optional<std::string> pattern = {};
};

/// The steps of a finished trace, by process and start. Throws Error for a pattern that is none.
std::vector<Step> find_steps(const Trace& trace, const StepOptions& options);

}  // namespace stepscope::tracer
