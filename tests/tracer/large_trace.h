#pragma once

/// Purpose: a trace of any size for tests of memory and speed: steps of optimizer kernels with the
/// calls that launch them, in ranges, as our programs record them.
///
/// Usage:  const Trace trace = large_trace(10'000'000);

#include <array>
#include <cstdint>
#include <string>

#include "tracer/trace.h"

namespace stepscope::tracer {

/// About `events` events: kernels and calls in equal parts, and a range per 1,000 of both.
inline Trace large_trace(std::int64_t events) {
  Trace trace;
  trace.add_process({.rank = 0, .world_size = 1, .pid = 4'711, .source = "cupti", .file = ""});
  trace.reserve(static_cast<std::size_t>(events + events / 1'000 + 1));
  std::array<std::uint32_t, 50> names{};
  std::array<std::uint32_t, 50> launches{};
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = trace.intern("void kernel<float, " + std::to_string(i) + ">(float*, int)");
    launches[i] = trace.add_launch({.grid = {static_cast<std::int64_t>(i) + 1, 1, 1}});
  }
  const auto call = trace.intern("cudaLaunchKernel");
  std::int64_t now = 1'000;
  for (std::int64_t pair = 0; pair < events / 2; ++pair) {
    if (pair % 500 == 0) {
      trace.add({.start_ns = now,
                 .end_ns = now + 500 * 2'000,
                 .thread = 4'711,
                 .name = trace.intern("stepscope:step " + std::to_string(pair / 500))});
    }
    const auto number = static_cast<std::uint64_t>(pair) + 1;
    const auto which = static_cast<std::size_t>(pair) % names.size();
    trace.add({.start_ns = now + 10,
               .end_ns = now + 900,
               .correlation = number,
               .thread = 4'711,
               .name = call,
               .kind = EventKind::api_call});
    trace.add({.start_ns = now + 1'000,
               .end_ns = now + 1'900,
               .value = pair % 65'536,
               .correlation = number,
               .stream = 7,
               .name = names[which],
               .detail = launches[which],
               .device = 0,
               .kind = EventKind::kernel,
               .value_source = ValueSource::exact});
    now += 2'000;
  }
  trace.finish();
  return trace;
}

}  // namespace stepscope::tracer
