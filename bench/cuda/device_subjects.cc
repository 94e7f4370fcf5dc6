#include "bench/cuda/device_subjects.h"

#include <utility>

#include "core/error.h"
#include "kernels/code_tables.h"
#include "kernels/cuda/cuda_step.h"
#include "topologies/device_runtime.h"

namespace stepscope::bench {
namespace {

constexpr auto kTableBytes = static_cast<std::int64_t>(sizeof(kernels::kSignedCodeBits));

}  // namespace

DeviceSubjects::DeviceSubjects(std::optional<kernels::BitsandbytesCuda> library)
    : library_(std::move(library)), signed_codes_(kTableBytes), unsigned_codes_(kTableBytes) {
  signed_codes_.upload(kernels::kSignedCodeBits.data());
  unsigned_codes_.upload(kernels::kUnsignedCodeBits.data());
}

std::function<void()> DeviceSubjects::make_step(const KernelCase& kernel_case,
                                                const TensorAddresses& tensors) {
  switch (kernel_case.implementation) {
    case Implementation::torch:
      return make_torch_step(kernel_case, tensors, topologies::Device::cuda);
    case Implementation::bitsandbytes:
      return make_bitsandbytes_step(kernel_case, tensors);
    case Implementation::native: {
      kernels::ShardTensors shard = shard_of(kernel_case, tensors);
      shard.step = 1;  // the device counts on from there
      auto step = std::make_shared<kernels::cuda::CudaStep>(
          algorithm_of(kernel_case.optimizer), hyperparameters_of(kernel_case.optimizer),
          std::span<const kernels::ShardTensors>(&shard, 1), -1);
      return [step] { step->enqueue(nullptr); };
    }
    case Implementation::torchao:
      break;
  }
  throw Error(kernel_case.benchmark_name() + " has no CUDA subject", "leave it out of --peers");
}

std::function<void()> DeviceSubjects::make_bitsandbytes_step(const KernelCase& kernel_case,
                                                             const TensorAddresses& tensors) {
  if (!library_) {
    throw Error(kernel_case.benchmark_name() + " needs bitsandbytes' CUDA library",
                "give --peers bitsandbytes");
  }
  return [this, shard = shard_of(kernel_case, tensors),
          algorithm = algorithm_of(kernel_case.optimizer),
          hyperparameters = hyperparameters_of(kernel_case.optimizer)]() mutable {
    ++shard.step;
    library_->step(algorithm, hyperparameters, shard,
                   static_cast<const float*>(signed_codes_.data()),
                   static_cast<const float*>(unsigned_codes_.data()));
  };
}

}  // namespace stepscope::bench
