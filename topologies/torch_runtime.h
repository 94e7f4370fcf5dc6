#pragma once

/// Purpose: facts about the libtorch and the kernels that this process runs, for provenance.
///
/// Usage:  manifest["pytorch"] = torch_version();

#include <string>

namespace stepscope::topologies {

/// "2.13.0".
std::string torch_version();

/// Instruction set that libtorch's CPU operators use, such as "AVX512".
std::string torch_cpu_capability();

/// Instruction set that the project's CPU kernels use, such as "AVX-512 VBMI".
std::string kernels_cpu_target();

}  // namespace stepscope::topologies
