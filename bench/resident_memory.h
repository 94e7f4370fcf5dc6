#pragma once

/// Purpose: what the kernel says about this process's memory, and what a host has left.
///
/// Usage:
///     reset_peak_resident();
///     ...
///     std::optional<std::int64_t> peak = peak_resident_bytes();
///
/// Caveats: Linux's /proc; nothing where it is missing.

#include <cstdint>
#include <optional>

namespace stepscope::bench {

/// Resident set of this process now (VmRSS).
std::optional<std::int64_t> resident_bytes();

/// Largest resident set since reset_peak_resident() (VmHWM).
std::optional<std::int64_t> peak_resident_bytes();

/// Starts the peak at the present resident set. Returns false where the kernel does not allow it;
/// the peak then counts from the start of the process.
bool reset_peak_resident();

/// Bytes that processes of this host, or of this process's control group where that has a limit,
/// can still allocate without swapping.
std::optional<std::int64_t> available_bytes();

}  // namespace stepscope::bench
