#pragma once

/// Purpose: what kernel_step needs of the device that it measures on: which cases there are, how
/// those of one size are measured, and how the device describes itself.
///
/// Usage:
///     const auto backend = open_kernel_backend({.device = Device::cuda, .peers =
///     {"bitsandbytes"}}); for (const KernelResult& result : backend->measure(cases, rounds)) ...
///
/// Caveats: of the GPU's side nothing has run on a GPU yet.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/kernel_measure.h"
#include "topologies/device_runtime.h"

namespace stepscope::bench {

struct KernelBackendOptions {
  topologies::Device device = topologies::Device::cpu;
  int threads = 1;                 ///< of the CPU's kernels, PyTorch and the peers
  std::string cpu_target = {};     ///< instruction set; empty: the best
  std::string python = {};         ///< the interpreter that has the peers
  std::string site_packages = {};  ///< where bitsandbytes' CUDA library is
  std::vector<std::string> peers =
      {};  ///< on the CPU bitsandbytes and torchao, on CUDA bitsandbytes
};

class KernelBackend {
 public:
  virtual ~KernelBackend() = default;

  /// The cases of the peers that were asked for.
  virtual std::vector<KernelCase> peer_cases(kernels::DType dtype, std::int64_t numel) const = 0;

  /// Times `rounds` samples a case, interleaved. Throws Error where a case cannot be measured.
  virtual std::vector<KernelResult> measure(const std::vector<KernelCase>& cases,
                                            std::int64_t rounds) = 0;

  /// Threads that the step uses; 0 where that means nothing.
  virtual std::int64_t threads() const = 0;

  /// Lines that say what is measured, to stand above the table.
  virtual std::vector<std::string> headlines() const = 0;

  /// For the run's manifest.
  virtual nlohmann::json description() const = 0;
};

/// Throws Error in one line where this machine or this build has no such device, instruction set or
/// peer.
std::unique_ptr<KernelBackend> open_kernel_backend(const KernelBackendOptions& options);

}  // namespace stepscope::bench
