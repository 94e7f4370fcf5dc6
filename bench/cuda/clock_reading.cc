#include "bench/cuda/clock_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace stepscope::bench {
namespace {

// nvmlClocksEventReason*
constexpr std::array<std::pair<std::uint64_t, std::string_view>, 9> kLimits = {{
    {0x1, "gpu_idle"},
    {0x2, "applications_clocks_setting"},
    {0x4, "sw_power_cap"},
    {0x8, "hw_slowdown"},
    {0x10, "sync_boost"},
    {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake_slowdown"},
    {0x100, "display_clock_setting"},
}};

}  // namespace

std::string limits_text(std::uint64_t limits) {
  std::string text;
  const auto add = [&](std::string_view name) {
    if (!text.empty()) text += '+';
    text += name;
  };
  for (const auto& [bit, name] : kLimits) {
    if ((limits & bit) != 0) add(name);
    limits &= ~bit;
  }
  if (limits != 0) add(fmt::format("{:#x}", limits));
  return text.empty() ? "none" : text;
}

std::string clocks_text(std::span<const ClockReading> readings) {
  std::int64_t lowest = readings.front().sm_mhz;
  std::int64_t highest = lowest;
  std::uint64_t limits = 0;
  for (const ClockReading& reading : readings) {
    lowest = std::min(lowest, reading.sm_mhz);
    highest = std::max(highest, reading.sm_mhz);
    limits |= reading.limits;
  }
  return fmt::format("{}-{} {}", lowest, highest, limits_text(limits));
}

}  // namespace stepscope::bench
