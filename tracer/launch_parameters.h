#pragma once

/// Purpose: the n of an optimizer kernel, read from the parameters of its launch.
///
/// Usage:
///     const auto* place = place_of_n(mangled_name);
///     if (place != nullptr) n = read_n(*place, kernel_parameters, grid_x);
///
/// Caveats: the table is that of bitsandbytes 0.50's kernels; tests/kernels/sass_test.py checks the
/// same ordinals and offsets against the cubins of the wheel. A kernel that is not in it has no n:
/// its grid alone bounds it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stepscope::tracer {

struct PlaceOfN {
  std::string_view prefix;              ///< of the mangled name
  std::size_t ordinal = 0;              ///< of the parameter
  std::size_t offset = 0;               ///< in bytes, among the parameters; it has 4 bytes
  std::int64_t elements_per_block = 0;  ///< that one thread block covers
};

/// Null where the kernel is not known.
const PlaceOfN* place_of_n(std::string_view mangled_name);

/// `parameters` is an array of pointers to the parameters. Nothing where it is null, or n and the
/// grid contradict each other: then the parameter is something else.
std::optional<std::int64_t> read_n(const PlaceOfN& place, void* const* parameters,
                                   std::int64_t grid_x);

}  // namespace stepscope::tracer
