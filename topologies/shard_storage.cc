#include "topologies/shard_storage.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include "core/error.h"
#include "kernels/code_tables.h"
#include "topologies/synthetic_values.h"

namespace stepscope::topologies {
namespace {

using kernels::DType;
using kernels::StateFormat;

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return at::kFloat;
    case DType::bf16:
      return at::kBFloat16;
    case DType::fp16:
      return at::kHalf;
  }
  throw Error("unknown data type");
}

at::DeviceType device_type(Device device) { return device == Device::cpu ? at::kCPU : at::kCUDA; }

at::Tensor allocate(std::int64_t numel, at::ScalarType type, Device device, std::int64_t rank,
                    const std::string& parameter) {
  try {
    return at::empty({numel}, at::TensorOptions().dtype(type).device(device_type(device)));
  } catch (const c10::Error& error) {
    throw Error("allocating " + std::to_string(numel) +
                    " elements failed: " + error.what_without_backtrace(),
                "use a smaller model, more ranks, or a machine with more memory",
                {.rank = rank, .parameter = parameter});
  }
}

std::int64_t storage_bytes(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.storage().nbytes()) : 0;
}

void* data(const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }

void zero(at::Tensor& tensor) {
  if (tensor.defined()) tensor.zero_();
}

}  // namespace

ShardStorage::ShardStorage(const Model& model, const ShardPlan& plan, std::int64_t rank,
                           const StepConfig& config) {
  const bool two_moments = moment_count(config.optimizer) == 2;
  const at::ScalarType type = scalar_type(config.dtype);
  for (const LocalShard& local : plan.local_shards(rank)) {
    const Parameter& parameter = model.parameters[local.parameter];
    const auto make = [&](std::int64_t count, at::ScalarType element) {
      return allocate(count, element, config.device, rank, parameter.name);
    };
    parameter_storage_.push_back(make(local.padded_numel, type));
    // What no optimizer reads still exists; its pages are touched so that resident memory is
    // honest.
    parameter_storage_.back().zero_();
    if (!is_stepped(parameter)) continue;
    gradient_storage_.push_back(make(local.padded_numel, type));
    gradient_storage_.back().zero_();
    if (local.numel == 0) continue;

    const StateFormat format = state_format(config.state_policy, asks_8bit(config.optimizer),
                                            numel(parameter), local.numel, config.min_8bit_size);
    const bool blockwise = format == StateFormat::blockwise_8bit;
    const at::ScalarType state_type = blockwise ? at::kByte : at::kFloat;
    ShardTensorSet set;
    set.param = parameter_storage_.back().narrow(0, 0, local.numel);
    set.grad = gradient_storage_.back().narrow(0, 0, local.numel);
    set.state1 = make(local.numel, state_type);
    if (two_moments) set.state2 = make(local.numel, state_type);
    if (blockwise) {
      const std::int64_t blocks = kernels::block_count(local.numel);
      set.absmax1 = make(blocks, at::kFloat);
      if (two_moments) set.absmax2 = make(blocks, at::kFloat);
    }
    shards_.push_back({.parameter = local.parameter,
                       .offset = local.offset,
                       .tensors = {.param = data(set.param),
                                   .grad = data(set.grad),
                                   .numel = local.numel,
                                   .dtype = config.dtype,
                                   .format = format,
                                   .step = 0,
                                   .state1 = data(set.state1),
                                   .state2 = data(set.state2),
                                   .absmax1 = static_cast<float*>(data(set.absmax1)),
                                   .absmax2 = static_cast<float*>(data(set.absmax2))}});
    tensor_sets_.push_back(std::move(set));
  }
}

void ShardStorage::restart() {
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    OwnedShard& shard = shards_[i];
    ShardTensorSet& set = tensor_sets_[i];
    const bool on_host = set.param.is_cpu();
    at::Tensor param =
        on_host ? set.param : at::empty_like(set.param, set.param.options().device(at::kCPU));
    at::Tensor grad =
        on_host ? set.grad : at::empty_like(set.grad, set.grad.options().device(at::kCPU));
    const auto& tensors = shard.tensors;
    fill_parameter(tensors.dtype, param.data_ptr(), shard.parameter, shard.offset, tensors.numel);
    fill_gradient(tensors.dtype, grad.data_ptr(), shard.parameter, shard.offset, tensors.numel);
    if (!on_host) {
      set.param.copy_(param);
      set.grad.copy_(grad);
    }
    zero(set.state1);
    zero(set.state2);
    zero(set.absmax1);
    zero(set.absmax2);
    shard.tensors.step = 0;
  }
}

MeasuredBytes ShardStorage::measured_bytes() const {
  MeasuredBytes bytes;
  for (const at::Tensor& tensor : parameter_storage_) bytes.parameter += storage_bytes(tensor);
  for (const at::Tensor& tensor : gradient_storage_) bytes.gradient += storage_bytes(tensor);
  for (const ShardTensorSet& set : tensor_sets_) {
    for (const at::Tensor* tensor : {&set.state1, &set.state2, &set.absmax1, &set.absmax2}) {
      bytes.moment += storage_bytes(*tensor);
    }
    if (set.absmax1.defined()) bytes.code_tables = kernels::kCodeTableBytes;
  }
  return bytes;
}

}  // namespace stepscope::topologies
