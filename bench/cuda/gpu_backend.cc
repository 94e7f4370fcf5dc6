#include "bench/cuda/gpu_backend.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <numeric>
#include <optional>

#include "bench/cuda/device_measure.h"
#include "bench/cuda/device_subjects.h"
#include "bench/cuda/gpu_timer.h"
#include "bench/cuda/nvml.h"
#include "core/error.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/device_info.h"

namespace stepscope::bench {
namespace {

constexpr int kOrdinal = 0;

std::string pci_bus_id() {
  std::array<char, 32> text{};
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), kOrdinal),
                       -1);
  return text.data();
}

std::optional<kernels::BitsandbytesCuda> load_peer(const KernelBackendOptions& options) {
  std::optional<kernels::BitsandbytesCuda> library;
  for (const std::string& peer : options.peers) {
    if (peer != implementation_name(Implementation::bitsandbytes)) {
      throw Error("--device cuda has no peer " + peer, "leave it out of --peers");
    }
    library = kernels::BitsandbytesCuda::from_site_packages(options.site_packages);
  }
  return library;
}

class GpuBackend final : public KernelBackend {
 public:
  explicit GpuBackend(const KernelBackendOptions& options)
      : runtime_(topologies::open_device(topologies::Device::cuda, kOrdinal)),
        info_(kernels::cuda::device_info(kOrdinal)),
        gpu_(nvml_.device(pci_bus_id())),
        library_(load_peer(options)),
        subjects_(library_),
        timer_(info_.l2_cache_bytes),
        thread_blocks_(traffic_thread_blocks()) {}

  std::vector<KernelCase> peer_cases(kernels::DType dtype, std::int64_t numel) const override {
    if (!library_) return {};
    return {{Implementation::bitsandbytes, KernelOptimizer::AdamW8bit, dtype, numel},
            {Implementation::bitsandbytes, KernelOptimizer::Lion8bit, dtype, numel}};
  }

  std::vector<KernelResult> measure(const std::vector<KernelCase>& cases,
                                    std::int64_t rounds) override {
    require_memory(cases);
    std::vector<std::unique_ptr<DeviceTensors>> tensors;
    std::vector<DeviceCase> device_cases;
    for (const KernelCase& c : cases) {
      tensors.push_back(std::make_unique<DeviceTensors>(c));
      device_cases.push_back(
          {.kernel_case = c,
           .step = subjects_.make_step(c, tensors.back()->addresses()),
           .traffic = [traffic = tensors.back()->traffic(), thread_blocks = thread_blocks_] {
             launch_traffic(traffic, thread_blocks);
           }});
    }
    return measure_on_device(device_cases, rounds, timer_, [this] { return gpu_.read(); });
  }

  std::int64_t threads() const override { return 0; }

  std::vector<std::string> headlines() const override {
    std::vector<std::string> lines = {
        fmt::format("kernels: CUDA, {}, compute capability {}.{}, driver {}; L2 cold before every "
                    "sample",
                    info_.name, info_.compute_major, info_.compute_minor, nvml_.driver_version())};
    if (library_) {
      lines.push_back(fmt::format("bitsandbytes {}: one call of {} a step, without its Python code",
                                  library_->version(), library_->library().filename().string()));
    }
    return lines;
  }

  nlohmann::json description() const override {
    nlohmann::json facts = {{"device", "cuda"}, {"device_description", runtime_->description()}};
    facts["device_description"]["driver"] = nvml_.driver_version();
    if (library_) facts["bitsandbytes"] = library_->version();
    return facts;
  }

 private:
  void require_memory(const std::vector<KernelCase>& cases) const {
    std::int64_t needed = 0;
    for (const KernelCase& c : cases) {
      const auto bytes = c.tensor_bytes();
      needed = std::accumulate(bytes.begin(), bytes.end(), needed);
    }
    const auto available = runtime_->available_bytes();
    if (!available || needed < *available - *available / 8) return;
    throw Error(fmt::format("the cases of {} elements need {} bytes of device memory at once, and "
                            "{} are free",
                            cases.front().numel, needed, *available),
                "measure smaller sizes (--sizes) or fewer data types (--dtypes)");
  }

  std::unique_ptr<topologies::DeviceRuntime> runtime_;
  kernels::cuda::DeviceInfo info_;
  Nvml nvml_;
  NvmlDevice gpu_;
  std::optional<kernels::BitsandbytesCuda> library_;
  DeviceSubjects subjects_;
  GpuTimer timer_;
  unsigned thread_blocks_;
};

}  // namespace

std::unique_ptr<KernelBackend> open_gpu_backend(const KernelBackendOptions& options) {
  return std::make_unique<GpuBackend>(options);
}

}  // namespace stepscope::bench
