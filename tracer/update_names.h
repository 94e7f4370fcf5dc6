#pragma once

/// Purpose: which kernels and operators update parameters, and how each says for how many elements.
///
/// Usage:
///     const UpdateRule* rule = update_kernel(name);
///     if (rule != nullptr && rule->elements_per_block > 0) bound = grid *
///     rule->elements_per_block;
///
/// Caveats: an optimizer that is not in the table is not seen; a step without any known update is
/// unverified, never ok. Names may be mangled, demangled or short.

#include <cstdint>
#include <string_view>

namespace stepscope::tracer {

/// Of how many tensors one kernel or operator takes care.
enum class UpdateScope : std::uint8_t {
  one_tensor,   ///< n is that tensor's
  each_input,   ///< an operator: every tensor it is handed has its n
  all_tensors,  ///< a kernel that walks a table: its grid says at most how many blocks there are
  norm_only,    ///< reads one tensor before its update (bitsandbytes' precondition)
};

struct UpdateRule {
  std::string_view name;
  UpdateScope scope = UpdateScope::one_tensor;
  /// Kernels: elements that one thread block covers; 0 where the grid says nothing about n.
  std::int64_t elements_per_block = 0;
  /// Operators of scope one_tensor: the argument that holds the parameter, or the list of them.
  std::int32_t argument = 0;
};

/// The rule for a device kernel; null where it is not known to update parameters.
const UpdateRule* update_kernel(std::string_view name);

/// The rule for an operator on the host; null likewise.
const UpdateRule* update_operator(std::string_view name);

}  // namespace stepscope::tracer
