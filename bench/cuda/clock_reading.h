#pragma once

/// Purpose: what a GPU's clocks were at one moment, and what held them down.
///
/// Usage:  const ClockReading now = gpu.read();  print(now.sm_mhz, limits_text(now.limits));
///
/// Caveats: an idle GPU's clocks are held down by being idle, which is a limit like the others.

#include <cstdint>
#include <span>
#include <string>

namespace stepscope::bench {

struct ClockReading {
  std::int64_t sm_mhz = 0;
  std::int64_t memory_mhz = 0;
  std::uint64_t limits = 0;  ///< NVML's bit mask of what holds the clocks down
};

/// "none", or the names of a mask's bits, joined by "+": "sw_power_cap+hw_slowdown". Bits without a
/// name here are given in hexadecimal.
std::string limits_text(std::uint64_t limits);

/// The SM clocks of some readings, at least one, and all that limited them: "1755-1980
/// sw_power_cap".
std::string clocks_text(std::span<const ClockReading> readings);

}  // namespace stepscope::bench
