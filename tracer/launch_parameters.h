#pragma once

/// Purpose: the n of an optimizer kernel, read from the parameters of its launch.
///
/// Usage:
///     const auto* place = place_of_n(mangled_name);
///     if (place != nullptr) n = read_n(*place, kernel_parameters, grid_x);
///
/// Caveats: the table is that of bitsandbytes 0.50's kernels, which tests/kernels/sass_test.py
/// checks against the cubins of the wheel, and of this project's own. A kernel that is not in it
/// has no n: its grid alone bounds it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace stepscope::tracer {

/// What the parameter holds.
enum class NParameter : std::uint8_t {
  numel,        ///< n itself, in 4 bytes
  block_counts  ///< kernels/cuda/step_table.h's StepArguments: n of all tensors in whole blocks
};

struct PlaceOfN {
  std::string_view prefix;              ///< of the mangled name
  std::size_t ordinal = 0;              ///< of the parameter
  std::size_t offset = 0;               ///< in bytes, among the parameters
  std::int64_t elements_per_block = 0;  ///< numel: that one thread block covers; else one block
  NParameter parameter = NParameter::numel;

  std::size_t bytes() const;  ///< of the parameter

  /// Whether what is read is n, and not the n that so many whole blocks have at the most.
  bool exact() const noexcept { return parameter == NParameter::numel; }
};

/// All kernels that are known.
std::span<const PlaceOfN> places_of_n();

/// Null where the kernel is not known.
const PlaceOfN* place_of_n(std::string_view mangled_name);

/// `parameters` is an array of pointers to the parameters. Nothing where it is null, or n and the
/// grid contradict each other: then the parameter is something else.
std::optional<std::int64_t> read_n(const PlaceOfN& place, void* const* parameters,
                                   std::int64_t grid_x);

}  // namespace stepscope::tracer
