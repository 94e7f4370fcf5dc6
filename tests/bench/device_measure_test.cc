#include "bench/cuda/device_measure.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace stepscope::bench {
namespace {

/// A device that writes down what it is asked for, and whose clock says how often it was asked.
class RecordingTimer final : public DeviceTimer {
 public:
  std::string log;

  void evict_l2() override { log += "evict "; }

  double time_ns(const std::function<void()>& enqueue) override {
    log += "time(";
    enqueue();
    log += ") ";
    return ++timed_;
  }

 private:
  double timed_ = 0;
};

KernelCase native(KernelOptimizer optimizer) {
  return {Implementation::native, optimizer, kernels::DType::fp32, 512};
}

DeviceCase recorded(KernelOptimizer optimizer, std::string& log, const std::string& name) {
  return {.kernel_case = native(optimizer),
          .step = [&log, name] { log += name; },
          .traffic = [&log, name] { log += name + "-bytes"; }};
}

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(MeasureOnDevice, TimesEveryStepColdWithItsBytesAndClocksBesideItCasesInterleaved) {
  RecordingTimer timer;
  const std::vector<DeviceCase> cases = {recorded(KernelOptimizer::AdamW8bit, timer.log, "a"),
                                         recorded(KernelOptimizer::Lion8bit, timer.log, "b")};
  std::int64_t read = 0;
  const auto results = measure_on_device(cases, 2, timer, [&] {
    timer.log += "clocks ";
    return ClockReading{.sm_mhz = 1000 + read++, .memory_mhz = 3000, .limits = 4};
  });
  const auto warm_up = [](const std::string& name) {
    return repeat("evict time(" + name + ") evict time(" + name + "-bytes) ", 3);
  };
  const auto sample = [](const std::string& name) {
    return "evict time(" + name + ") clocks evict time(" + name + "-bytes) ";
  };
  EXPECT_EQ(timer.log, warm_up("a") + warm_up("b") + repeat(sample("a") + sample("b"), 2));

  ASSERT_EQ(results.size(), 2u);
  // Twelve timings of the warm-up, then a, its bytes, b, its bytes, and again.
  EXPECT_EQ(results[0].step_ns, (std::vector<double>{13, 17}));
  EXPECT_EQ(results[0].traffic_ns, (std::vector<double>{14, 18}));
  EXPECT_EQ(results[1].step_ns, (std::vector<double>{15, 19}));
  EXPECT_EQ(results[1].traffic_ns, (std::vector<double>{16, 20}));
  ASSERT_EQ(results[1].clocks.size(), 2u);
  EXPECT_EQ(results[1].clocks[0].sm_mhz, 1001);
  EXPECT_EQ(results[1].clocks[1].sm_mhz, 1003);
  EXPECT_EQ(results[1].clocks[1].limits, 4u);
  EXPECT_EQ(results[0].moved_bytes, 512 * (3 * 4 + 2 * 2) + 2 * 2 * 2 * 4);
  EXPECT_EQ(results[0].steps_a_sample, 1);
}

TEST(MeasureOnDevice, AFailureNamesTheCaseAndKeepsTheAdvice) {
  RecordingTimer timer;
  DeviceCase failing = recorded(KernelOptimizer::Lion8bit, timer.log, "x");
  failing.step = [] { throw Error("the launch failed", "run it elsewhere", {.rank = 3}); };
  const auto attempt = [&](const std::vector<DeviceCase>& cases,
                           const std::function<ClockReading()>& read) -> std::string {
    try {
      measure_on_device(cases, 1, timer, read);
    } catch (const Error& error) {
      EXPECT_EQ(error.advice(), "run it elsewhere");
      EXPECT_EQ(error.where().rank, 3);
      return error.what_failed();
    }
    return "nothing failed";
  };
  EXPECT_EQ(attempt({failing}, [] { return ClockReading(); }),
            "KernelStep/native/Lion8bit/fp32/512: the launch failed");
  EXPECT_EQ(attempt({recorded(KernelOptimizer::AdamW8bit, timer.log, "a")},
                    []() -> ClockReading {
                      throw Error("NVML failed", "run it elsewhere", {.rank = 3});
                    }),
            "KernelStep/native/AdamW8bit/fp32/512: NVML failed");
}

TEST(ClocksText, GivesTheRangeOfTheClocksAndEveryLimit) {
  const std::vector<ClockReading> readings = {{.sm_mhz = 1980, .memory_mhz = 3201, .limits = 0},
                                              {.sm_mhz = 1755, .memory_mhz = 3201, .limits = 0x4},
                                              {.sm_mhz = 1800, .memory_mhz = 3201, .limits = 0x40}};
  EXPECT_EQ(clocks_text(readings), "1755-1980 sw_power_cap+hw_thermal_slowdown");
  EXPECT_EQ(clocks_text({readings.data(), 1}), "1980-1980 none");
}

}  // namespace
}  // namespace stepscope::bench
