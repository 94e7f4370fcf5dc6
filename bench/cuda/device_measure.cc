#include "bench/cuda/device_measure.h"

#include "core/error.h"

namespace stepscope::bench {
namespace {

/// The first launches of a kernel load it.
constexpr int kWarmUpSteps = 3;

double cold_ns(DeviceTimer& timer, const std::function<void()>& enqueue) {
  timer.evict_l2();
  return timer.time_ns(enqueue);
}

template <class Action>
void name_case(const DeviceCase& c, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    throw Error(c.kernel_case.benchmark_name() + ": " + error.what_failed(), error.advice(),
                error.where());
  }
}

}  // namespace

std::vector<KernelResult> measure_on_device(std::span<const DeviceCase> cases, std::int64_t rounds,
                                            DeviceTimer& timer,
                                            const std::function<ClockReading()>& read_clocks) {
  std::vector<KernelResult> results;
  for (const DeviceCase& c : cases) {
    KernelResult result;
    result.kernel_case = c.kernel_case;
    result.moved_bytes = c.kernel_case.moved_bytes();
    result.moment_bytes = c.kernel_case.moment_bytes();
    result.steps_a_sample = 1;
    name_case(c, [&] {
      for (int i = 0; i < kWarmUpSteps; ++i) {
        cold_ns(timer, c.step);
        cold_ns(timer, c.traffic);
      }
    });
    results.push_back(std::move(result));
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      name_case(cases[i], [&] {
        results[i].step_ns.push_back(cold_ns(timer, cases[i].step));
        results[i].clocks.push_back(read_clocks());
        results[i].traffic_ns.push_back(cold_ns(timer, cases[i].traffic));
      });
    }
  }
  return results;
}

}  // namespace stepscope::bench
