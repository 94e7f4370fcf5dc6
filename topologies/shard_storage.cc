#include "topologies/shard_storage.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <string>

#include "core/error.h"
#include "kernels/code_tables.h"
#include "topologies/synthetic_values.h"
#include "topologies/torch_types.h"

namespace stepscope::topologies {
namespace {

using kernels::DType;
using kernels::StateFormat;
using Fill = void (*)(DType, void*, std::uint64_t, std::int64_t, std::int64_t);

at::Tensor allocate(std::int64_t numel, at::ScalarType type, Device device, std::int64_t rank) {
  try {
    const auto where = device == Device::cpu ? at::kCPU : at::kCUDA;
    return at::empty({numel}, at::TensorOptions().dtype(type).device(where));
  } catch (const c10::Error& error) {
    throw Error("allocating " + std::to_string(numel) +
                    " elements failed: " + error.what_without_backtrace(),
                "use a smaller model, more ranks, or a machine with more memory", {.rank = rank});
  }
}

std::int64_t storage_bytes(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.storage().nbytes()) : 0;
}

void* data(const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }

void zero(at::Tensor& tensor) {
  if (tensor.defined()) tensor.zero_();
}

at::Tensor part(const at::Tensor& tensor, std::int64_t first, std::int64_t numel) {
  return tensor.defined() ? tensor.narrow(0, first, numel) : tensor;
}

/// Writes the synthetic values of `ranges` into `tensor`; what lies in no range stays as it is.
void fill_ranges(const at::Tensor& tensor, DType dtype, const std::vector<Range>& ranges,
                 Fill fill) {
  if (ranges.empty()) return;
  const bool on_host = tensor.is_cpu();
  at::Tensor host = on_host ? tensor : at::zeros_like(tensor, tensor.options().device(at::kCPU));
  auto* bytes = static_cast<std::byte*>(host.data_ptr());
  for (const Range& range : ranges) {
    fill(dtype, bytes + range.position * kernels::element_bytes(dtype), range.parameter,
         range.offset, range.numel);
  }
  if (!on_host) tensor.copy_(host);
}

std::vector<std::byte*> starts(const std::vector<at::Tensor>& tensors) {
  std::vector<std::byte*> pointers;
  for (const at::Tensor& tensor : tensors) {
    pointers.push_back(static_cast<std::byte*>(tensor.data_ptr()));
  }
  return pointers;
}

}  // namespace

ShardStorage::ShardStorage(const Model& model, const ShardPlan& plan, std::int64_t rank,
                           const StepConfig& config)
    : dtype_(config.dtype),
      layout_(step_layout(model, plan, rank, config.optimizer, config.state_policy,
                          config.min_8bit_size)),
      local_tensors_(plan.local_tensors(rank)) {
  const at::ScalarType type = scalar_type(config.dtype);
  for (const LocalTensor& local : local_tensors_) {
    // What no optimizer reads still exists; its pages are touched so that resident memory is
    // honest, and padding is zero, as in PyTorch.
    params_.push_back(allocate(local.padded_numel, type, config.device, rank).zero_());
    grads_.emplace_back();
    if (local.stepped) {
      grads_.back() = allocate(local.padded_numel, type, config.device, rank).zero_();
    }
  }
  for (const CutBlock& block : layout_.borders.blocks) {
    block_params_.push_back(allocate(block.numel, type, config.device, rank).zero_());
    block_grads_.push_back(allocate(block.numel, type, config.device, rank).zero_());
    const auto place = [&](const at::Tensor& tensor, std::int64_t element) {
      return static_cast<std::byte*>(tensor.data_ptr()) + element * kernels::element_bytes(dtype_);
    };
    own_parts_.push_back(
        {.param = place(params_[block.tensor], block.position),
         .grad = place(grads_[block.tensor], block.position),
         .block_param = place(block_params_.back(), block.own_offset),
         .block_grad = place(block_grads_.back(), block.own_offset),
         .bytes = static_cast<std::size_t>(block.own_numel * kernels::element_bytes(dtype_))});
  }
  allocate_states(config, rank);
  for (const StepPiece& piece : layout_.pieces) add_piece(piece);
}

void ShardStorage::allocate_states(const StepConfig& config, std::int64_t rank) {
  const bool two_moments = moment_count(config.optimizer) == 2;
  for (const StatePiece& piece : layout_.states) {
    const std::int64_t numel = piece.moment_numel();
    const auto make = [&](std::int64_t count, at::ScalarType type) {
      return allocate(count, type, config.device, rank);
    };
    State state;
    const bool blockwise = piece.format == StateFormat::blockwise_8bit;
    const at::ScalarType type = blockwise ? at::kByte : at::kFloat;
    state.state1 = make(numel, type);
    if (two_moments) state.state2 = make(numel, type);
    if (blockwise) {
      state.absmax1 = make(kernels::block_count(numel), at::kFloat);
      if (two_moments) state.absmax2 = make(kernels::block_count(numel), at::kFloat);
    }
    states_.push_back(std::move(state));
  }
}

void ShardStorage::add_piece(const StepPiece& piece) {
  const State& state = states_[piece.state];
  ShardTensorSet set;
  if (piece.cut_block) {
    set.param = block_params_[*piece.cut_block];
    set.grad = block_grads_[*piece.cut_block];
  } else {
    set.param = params_[piece.tensor].narrow(0, piece.position, piece.numel);
    set.grad = grads_[piece.tensor].narrow(0, piece.position, piece.numel);
  }
  const std::int64_t first_block = piece.state_offset / kernels::kBlockSize;
  const std::int64_t blocks = kernels::block_count(piece.numel);
  set.state1 = part(state.state1, piece.state_offset, piece.numel);
  set.state2 = part(state.state2, piece.state_offset, piece.numel);
  set.absmax1 = part(state.absmax1, first_block, blocks);
  set.absmax2 = part(state.absmax2, first_block, blocks);
  shards_.push_back({.ranges = piece.ranges,
                     .tensors = {.param = data(set.param),
                                 .grad = data(set.grad),
                                 .numel = piece.numel,
                                 .dtype = dtype_,
                                 .grad_dtype = dtype_,
                                 .format = piece.format,
                                 .step = 0,
                                 .state1 = data(set.state1),
                                 .state2 = data(set.state2),
                                 .absmax1 = static_cast<float*>(data(set.absmax1)),
                                 .absmax2 = static_cast<float*>(data(set.absmax2)),
                                 .absmax_count = set.absmax1.defined() ? set.absmax1.numel() : 0}});
  tensor_sets_.push_back(std::move(set));
}

void ShardStorage::restart() {
  for (std::size_t i = 0; i < local_tensors_.size(); ++i) {
    if (!grads_[i].defined()) continue;
    params_[i].zero_();
    grads_[i].zero_();
    fill_ranges(params_[i], dtype_, local_tensors_[i].ranges, fill_parameter);
    fill_ranges(grads_[i], dtype_, local_tensors_[i].ranges, fill_gradient);
  }
  for (State& state : states_) {
    for (at::Tensor* tensor : {&state.state1, &state.state2, &state.absmax1, &state.absmax2}) {
      zero(*tensor);
    }
  }
  for (OwnedShard& shard : shards_) shard.tensors.step = 0;
}

void ShardStorage::set_steps(std::span<const std::int64_t> steps) {
  if (steps.size() != shards_.size()) {
    throw Error(std::to_string(steps.size()) + " step counts for " +
                std::to_string(shards_.size()) + " pieces");
  }
  for (std::size_t i = 0; i < steps.size(); ++i) shards_[i].tensors.step = steps[i];
}

std::vector<std::byte*> ShardStorage::block_params() const { return starts(block_params_); }
std::vector<std::byte*> ShardStorage::block_grads() const { return starts(block_grads_); }

std::vector<LocalView> ShardStorage::local_views() const {
  std::vector<LocalView> views;
  for (std::size_t i = 0; i < local_tensors_.size(); ++i) {
    views.push_back({.ranges = local_tensors_[i].ranges,
                     .numel = local_tensors_[i].numel,
                     .param = data(params_[i]),
                     .grad = data(grads_[i])});
  }
  return views;
}

MeasuredBytes ShardStorage::measured_bytes() const {
  MeasuredBytes bytes;
  for (const at::Tensor& tensor : params_) bytes.parameter += storage_bytes(tensor);
  for (const at::Tensor& tensor : grads_) bytes.gradient += storage_bytes(tensor);
  for (const State& state : states_) {
    for (const at::Tensor* tensor :
         {&state.state1, &state.state2, &state.absmax1, &state.absmax2}) {
      bytes.moment += storage_bytes(*tensor);
    }
    if (state.absmax1.defined()) bytes.code_tables = kernels::kCodeTableBytes;
  }
  return bytes;
}

}  // namespace stepscope::topologies
