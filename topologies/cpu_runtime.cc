#include "topologies/cpu_runtime.h"

#include <cstring>

#include "topologies/counting_allocator.h"

namespace stepscope::topologies {
namespace {

class CpuRuntime final : public DeviceRuntime {
 public:
  CpuRuntime() { install_counting_allocator(); }
  Device device() const override { return Device::cpu; }
  void synchronize() override {}
  void copy_to_host(void* destination, const void* source, std::int64_t bytes) override {
    std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  }
  void copy_to_device(void* destination, const void* source, std::int64_t bytes) override {
    std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  }
  PeakMemory peak_memory() const override {
    return {.allocated = allocated().peak, .reserved = std::nullopt};
  }
  void reset_peak_memory() override { reset_peak_allocated(); }
  std::optional<std::int64_t> available_bytes() const override { return std::nullopt; }
  nlohmann::json description() const override { return nlohmann::json::object(); }
};

}  // namespace

std::unique_ptr<DeviceRuntime> open_cpu() { return std::make_unique<CpuRuntime>(); }

}  // namespace stepscope::topologies
