#include "bench/kernel_peers.h"

#include <chrono>

#include "core/error.h"
#include "core/parse.h"

namespace stepscope::bench {
namespace {

using std::chrono::seconds;

constexpr seconds kImport{120};
constexpr seconds kMake{120};
// bitsandbytes takes some 3 s for a step of 2^25 elements on one slow core.
constexpr seconds kSample{300};
constexpr std::int64_t kLongestNs = std::int64_t{3600} * 1'000'000'000;

Implementation library_named(const std::string& name) {
  for (const Implementation one : {Implementation::bitsandbytes, Implementation::torchao}) {
    if (implementation_name(one) == name) return one;
  }
  throw Error("--peers names " + name, "it takes bitsandbytes and torchao");
}

class PeerSubject final : public KernelSubject {
 public:
  PeerSubject(PeerProcess& process, std::string number)
      : process_(process), number_(std::move(number)) {}

  double timed_steps(std::int64_t steps) override {
    const auto answer = process_.ask("step " + number_ + " " + std::to_string(steps), kSample);
    return static_cast<double>(parse_int("a peer's time", answer, 0, kLongestNs));
  }

 private:
  PeerProcess& process_;
  std::string number_;
};

}  // namespace

KernelPeers::KernelPeers(const PeerOptions& options) {
  for (const std::string& name : options.libraries) {
    const Implementation library = library_named(name);
    auto process = std::make_unique<PeerProcess>(
        std::vector<std::string>{options.python, STEPSCOPE_BENCH_FOLDER "/kernel_peer.py"});
    try {
      versions_[name] =
          process->ask("open " + name + " " + std::to_string(options.threads), kImport);
    } catch (const Error& error) {
      throw Error(name + " cannot be measured: " + error.what_failed(),
                  "install it for the interpreter that --python names, or leave it out of --peers");
    }
    processes_[library] = std::move(process);
  }
}

std::vector<KernelCase> KernelPeers::cases(kernels::DType dtype, std::int64_t numel) const {
  std::vector<KernelCase> all;
  for (const auto& [library, process] : processes_) {
    all.push_back({library, KernelOptimizer::AdamW8bit, dtype, numel});
    // torchao has no 8-bit Lion.
    if (library == Implementation::bitsandbytes) {
      all.push_back({library, KernelOptimizer::Lion8bit, dtype, numel});
    }
  }
  return all;
}

std::unique_ptr<KernelSubject> KernelPeers::make_subject(const KernelCase& kernel_case) {
  PeerProcess& process = *processes_.at(kernel_case.implementation);
  const std::string number = std::to_string(made_++);
  try {
    process.ask("make " + number + " " + std::string(optimizer_name(kernel_case.optimizer)) + " " +
                    std::string(dtype_name(kernel_case.dtype)) + " " +
                    std::to_string(kernel_case.numel),
                kMake);
  } catch (const Error& error) {
    throw Error(kernel_case.benchmark_name() + ": " + error.what_failed(), error.advice());
  }
  return std::make_unique<PeerSubject>(process, number);
}

}  // namespace stepscope::bench
