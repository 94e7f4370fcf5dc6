#include "topologies/torch_runtime.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include "core/error.h"
#include "kernels/cpu_step.h"

namespace stepscope::topologies {

std::string torch_version() { return TORCH_VERSION; }

std::string torch_cpu_capability() { return at::get_cpu_capability(); }

std::string kernels_cpu_target() { return kernels::cpu_step_target(); }

void require_device(Device device) {
  if (device == Device::cpu) return;
  throw Error("this build measures on the CPU only", "run with --device cpu");
}

}  // namespace stepscope::topologies
