#include "bench/cuda/device_buffer.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_check.h"

namespace stepscope::bench {

DeviceBuffer::DeviceBuffer(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const auto padded = static_cast<std::size_t>(words()) * 16;
  STEPSCOPE_CUDA_CHECK(cudaMalloc(&data_, padded), -1);
  STEPSCOPE_CUDA_CHECK(cudaMemset(data_, 0, padded), -1);
}

// A failure here has nobody to go to: the context is gone already.
DeviceBuffer::~DeviceBuffer() { static_cast<void>(cudaFree(data_)); }

void DeviceBuffer::upload(const void* source) {
  if (bytes_ == 0) return;
  STEPSCOPE_CUDA_CHECK(
      cudaMemcpy(data_, source, static_cast<std::size_t>(bytes_), cudaMemcpyHostToDevice), -1);
}

DeviceTensors::DeviceTensors(const KernelCase& kernel_case) {
  const KernelTensors host(kernel_case);
  for (const auto& source : host.buffers()) {
    buffers_.push_back(std::make_unique<DeviceBuffer>(source->bytes()));
    buffers_.back()->upload(source->data());
  }
}

TrafficArguments DeviceTensors::traffic() const {
  TrafficArguments arguments{};
  arguments.tensors[0] = {buffers_[0]->data(), buffers_[1]->data(), buffers_[0]->words()};
  for (std::size_t i = 1; i < 5; ++i) {
    const DeviceBuffer& buffer = *buffers_[i + 1];
    arguments.tensors[i] = {buffer.data(), nullptr, buffer.words()};
  }
  return arguments;
}

}  // namespace stepscope::bench
