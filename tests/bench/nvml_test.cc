#include "bench/cuda/nvml.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace stepscope::bench {
namespace {

constexpr const char* kBusId = "00000000:4E:00.0";

/// Loads a double first, so that the test and Nvml see the same one.
class NvmlDouble {
 public:
  explicit NvmlDouble(const char* path) : handle_(dlopen(path, RTLD_NOW)) {}
  ~NvmlDouble() {
    call<void (*)(int)>("double_fail")(0);
    dlclose(handle_);
  }
  NvmlDouble(const NvmlDouble&) = delete;
  NvmlDouble& operator=(const NvmlDouble&) = delete;

  template <class Function>
  Function call(const char* name) const {
    return reinterpret_cast<Function>(dlsym(handle_, name));
  }
  void fail(int status) const { call<void (*)(int)>("double_fail")(status); }
  void limit(unsigned long long mask) const {
    call<void (*)(unsigned long long)>("double_limit")(mask);
  }
  int running() const { return call<int (*)()>("double_running")(); }

 private:
  void* handle_;
};

std::string message_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_FALSE(error.advice().empty());
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }
  return "nothing was thrown";
}

TEST(Nvml, ReadsTheClocksOfSmAndMemoryAndWhatLimitsThem) {
  for (const char* path : {STEPSCOPE_NVML_DOUBLE, STEPSCOPE_NVML_DOUBLE_OLD}) {
    const NvmlDouble library(path);
    library.limit(0x4);
    const Nvml nvml(path);
    const ClockReading reading = nvml.device(kBusId).read();
    EXPECT_EQ(reading.sm_mhz, 1980) << path;
    EXPECT_EQ(reading.memory_mhz, 3201) << path;
    EXPECT_EQ(reading.limits, 0x4u) << path;
    EXPECT_EQ(nvml.driver_version(), "580.95.05");
  }
}

TEST(Nvml, IsStoppedOnceItsLastDeviceIsGone) {
  const NvmlDouble library(STEPSCOPE_NVML_DOUBLE);
  {
    const NvmlDevice device = Nvml(STEPSCOPE_NVML_DOUBLE).device(kBusId);
    EXPECT_EQ(library.running(), 1);
    EXPECT_EQ(device.read().sm_mhz, 1980);
  }
  EXPECT_EQ(library.running(), 0);
}

TEST(Nvml, AMissingLibraryIsOneLine) {
  EXPECT_NE(
      message_of([] { const Nvml nvml("libno-such-nvml.so.1"); }).find("libno-such-nvml.so.1"),
      std::string::npos);
}

TEST(Nvml, AMissingFunctionIsNamed) {
  EXPECT_NE(message_of([] {
              const Nvml nvml(STEPSCOPE_NVML_DOUBLE_INCOMPLETE);
            }).find("NVML has no function nvmlDeviceGetClockInfo"),
            std::string::npos);
}

TEST(Nvml, AFailingCallIsNamedWithTheLibrarysWords) {
  const NvmlDouble library(STEPSCOPE_NVML_DOUBLE);
  const Nvml nvml(STEPSCOPE_NVML_DOUBLE);
  const NvmlDevice device = nvml.device(kBusId);
  EXPECT_NE(message_of([&] { nvml.device("00000000:01:00.0"); }).find("00000000:01:00.0"),
            std::string::npos);
  library.fail(3);
  EXPECT_NE(message_of([&] { device.read(); }).find("nvmlDeviceGetClockInfo"), std::string::npos);
  EXPECT_NE(message_of([&] { nvml.driver_version(); }).find("Not Supported (3)"),
            std::string::npos);
  library.fail(9);
  EXPECT_NE(message_of([] {
              const Nvml second(STEPSCOPE_NVML_DOUBLE);
            }).find("nvmlInit_v2 failed: Driver Not Loaded (9)"),
            std::string::npos);
  EXPECT_EQ(library.running(), 1);  // the one that could be started
}

TEST(LimitsText, NamesEveryBitAndKeepsUnknownOnes) {
  EXPECT_EQ(limits_text(0), "none");
  EXPECT_EQ(limits_text(0x1), "gpu_idle");
  EXPECT_EQ(limits_text(0x4 | 0x40), "sw_power_cap+hw_thermal_slowdown");
  EXPECT_EQ(limits_text(0x8 | 0x1000), "hw_slowdown+0x1000");
}

}  // namespace
}  // namespace stepscope::bench
