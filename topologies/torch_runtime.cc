#include "topologies/torch_runtime.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include "kernels/cpu_step.h"

namespace stepscope::topologies {

std::string torch_version() { return TORCH_VERSION; }

std::string torch_cpu_capability() { return at::get_cpu_capability(); }

std::string kernels_cpu_target() { return kernels::cpu_step_target(); }

}  // namespace stepscope::topologies
