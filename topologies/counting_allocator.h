#pragma once

/// Purpose: peak memory on CPU, from the allocator itself: how many bytes libtorch's tensors hold
/// now and held at most.
///
/// Usage:
///     install_counting_allocator();          // before the first tensor
///     reset_peak_allocated();
///     ...
///     std::int64_t peak = allocated().peak;
///
/// Caveats: counts the bytes asked for by tensors (temporaries of operators included), not what the
/// C library or the kernel round them up to, and not memory outside libtorch. Resident memory is
/// measured apart (bench/resident_memory.h). There is no "reserved" on CPU: nothing is cached.

#include <cstdint>

namespace stepscope::topologies {

struct AllocatedBytes {
  std::int64_t current = 0;
  std::int64_t peak = 0;  ///< largest `current` since reset_peak_allocated()
};

/// Makes libtorch's CPU tensors count. Further calls do nothing.
void install_counting_allocator();

AllocatedBytes allocated();

/// From here on the peak starts at what is allocated now.
void reset_peak_allocated();

}  // namespace stepscope::topologies
