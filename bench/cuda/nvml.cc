#include "bench/cuda/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "core/error.h"

namespace stepscope::bench {
namespace {

// What is used of NVML's C interface, whose header is not among the toolkit's packages.
constexpr int kSuccess = 0;
constexpr int kSmClock = 1;
constexpr int kMemoryClock = 2;
constexpr unsigned kVersionBytes = 80;

constexpr const char* kAdvice =
    "install NVIDIA's driver for CUDA 13 with its libnvidia-ml.so.1, or run with --device cpu";

template <class Function>
Function optional_symbol(void* handle, const char* name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

template <class Function>
Function symbol(void* handle, const char* name, const std::string& library) {
  const auto found = optional_symbol<Function>(handle, name);
  if (found == nullptr) {
    throw Error(std::string("NVML has no function ") + name, kAdvice, {.file = library});
  }
  return found;
}

}  // namespace

struct Nvml::Library {
  explicit Library(const std::string& name);
  ~Library() {
    if (started) static_cast<void>(shutdown());
    dlclose(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// Throws Error unless `status` is success.
  void check(int status, std::string_view call) const {
    if (status == kSuccess) return;
    throw Error(fmt::format("{} failed: {} ({})", call, error_string(status), status), kAdvice);
  }

  void find_functions(const std::string& name);

  void* handle;
  bool started = false;
  int (*initialize)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*device_by_bus_id)(const char*, void**) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*limits)(void*, unsigned long long*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
};

Nvml::Library::Library(const std::string& name) : handle(dlopen(name.c_str(), RTLD_NOW)) {
  if (handle == nullptr) {
    const char* reason = dlerror();
    throw Error(std::string("NVML cannot be loaded: ") + (reason != nullptr ? reason : "unknown"),
                kAdvice);
  }
  try {
    find_functions(name);
    check(initialize(), "nvmlInit_v2");
  } catch (const Error&) {
    dlclose(handle);
    throw;
  }
  started = true;
}

void Nvml::Library::find_functions(const std::string& name) {
  initialize = symbol<decltype(initialize)>(handle, "nvmlInit_v2", name);
  shutdown = symbol<decltype(shutdown)>(handle, "nvmlShutdown", name);
  error_string = symbol<decltype(error_string)>(handle, "nvmlErrorString", name);
  device_by_bus_id =
      symbol<decltype(device_by_bus_id)>(handle, "nvmlDeviceGetHandleByPciBusId_v2", name);
  clock = symbol<decltype(clock)>(handle, "nvmlDeviceGetClockInfo", name);
  driver_version = symbol<decltype(driver_version)>(handle, "nvmlSystemGetDriverVersion", name);
  // Drivers before 535 know it by its old name alone.
  limits = optional_symbol<decltype(limits)>(handle, "nvmlDeviceGetCurrentClocksEventReasons");
  if (limits == nullptr) {
    limits = symbol<decltype(limits)>(handle, "nvmlDeviceGetCurrentClocksThrottleReasons", name);
  }
}

Nvml::Nvml(const std::string& library) : library_(std::make_shared<const Library>(library)) {}

NvmlDevice Nvml::device(const std::string& pci_bus_id) const {
  void* handle = nullptr;
  library_->check(library_->device_by_bus_id(pci_bus_id.c_str(), &handle),
                  "nvmlDeviceGetHandleByPciBusId of " + pci_bus_id);
  return {library_, handle};
}

std::string Nvml::driver_version() const {
  std::array<char, kVersionBytes> text{};
  library_->check(library_->driver_version(text.data(), kVersionBytes - 1),
                  "nvmlSystemGetDriverVersion");
  return text.data();
}

ClockReading NvmlDevice::read() const {
  unsigned sm = 0;
  unsigned memory = 0;
  unsigned long long limits = 0;
  library_->check(library_->clock(handle_, kSmClock, &sm), "nvmlDeviceGetClockInfo of the SMs");
  library_->check(library_->clock(handle_, kMemoryClock, &memory),
                  "nvmlDeviceGetClockInfo of the memory");
  library_->check(library_->limits(handle_, &limits), "nvmlDeviceGetCurrentClocksEventReasons");
  return {.sm_mhz = sm, .memory_mhz = memory, .limits = limits};
}

}  // namespace stepscope::bench
