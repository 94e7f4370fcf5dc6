#include "bench/kernel_backend.h"

#include <fmt/format.h>

#include "core/error.h"
#include "kernels/cpu_step.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "bench/cuda/gpu_backend.h"
#endif

namespace stepscope::bench {
namespace {

class CpuBackend final : public KernelBackend {
 public:
  explicit CpuBackend(const KernelBackendOptions& options)
      : peers_({.python = options.python, .libraries = options.peers, .threads = options.threads}),
        pool_(options.threads) {}

  std::vector<KernelCase> peer_cases(kernels::DType dtype, std::int64_t numel) const override {
    return peers_.cases(dtype, numel);
  }

  std::vector<KernelResult> measure(const std::vector<KernelCase>& cases,
                                    std::int64_t rounds) override {
    return measure_interleaved(cases, rounds, pool_, peers_);
  }

  std::int64_t threads() const override { return pool_.size(); }

  std::vector<std::string> headlines() const override {
    std::vector<std::string> lines = {
        fmt::format("kernels: {}, {} thread(s)", kernels::cpu_step_target(), pool_.size())};
    for (const auto& [library, version] : peers_.versions()) {
      lines.push_back(
          fmt::format("{} {}: its Python optimizer, in a process of its own", library, version));
    }
    return lines;
  }

  nlohmann::json description() const override {
    nlohmann::json facts = {{"device", "cpu"},
                            {"kernels_cpu_target", kernels::cpu_step_target()},
                            {"threads_a_rank", pool_.size()}};
    for (const auto& [library, version] : peers_.versions()) facts[library] = version;
    return facts;
  }

 private:
  KernelPeers peers_;
  kernels::ThreadPool pool_;
};

}  // namespace

std::unique_ptr<KernelBackend> open_kernel_backend(const KernelBackendOptions& options) {
  if (options.device == topologies::Device::cuda) {
#ifdef STEPSCOPE_WITH_CUDA
    return open_gpu_backend(options);
#else
    throw Error("this build has no CUDA back end",
                "configure with -DSTEPSCOPE_CUDA=ON, or run with --device cpu");
#endif
  }
  kernels::force_cpu_step_target(options.cpu_target);
  return std::make_unique<CpuBackend>(options);
}

}  // namespace stepscope::bench
