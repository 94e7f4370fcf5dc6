#include "topologies/cut_block_exchange.h"

#include <ATen/ops/empty.h>

#include <cstdint>

#include "topologies/state_policy.h"

namespace stepscope::topologies {
namespace {

at::Tensor bytes(std::int64_t count, Device device) {
  const auto where = device == Device::cpu ? at::kCPU : at::kCUDA;
  return at::empty({count}, at::TensorOptions().dtype(at::kByte).device(where));
}

std::span<std::byte> span_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

std::optional<CutBlockExchange> CutBlockExchange::make(const ShardStorage& storage,
                                                       const StepConfig& config,
                                                       Communicator& communicator, Copy copy) {
  if (config.state_policy != StatePolicy::original || !asks_8bit(config.optimizer)) return {};
  const auto cut = static_cast<std::int64_t>(storage.borders().blocks.size());
  if (max_over_ranks(communicator, cut) == 0) return {};
  return CutBlockExchange(storage, config, communicator, copy);
}

CutBlockExchange::CutBlockExchange(const ShardStorage& storage, const StepConfig& config,
                                   Communicator& communicator, Copy copy)
    : storage_(&storage),
      communicator_(&communicator),
      copy_(copy),
      exchange_(storage.borders(), kernels::element_bytes(config.dtype), communicator.world_size()),
      block_params_(storage.block_params()),
      block_grads_(storage.block_grads()),
      send_(bytes(exchange_.sent_bytes(), config.device)),
      receive_(bytes(exchange_.received_bytes(), config.device)) {}

ExchangeMemory CutBlockExchange::memory() const {
  return {.send = span_of(send_), .receive = span_of(receive_), .copy = copy_};
}

void CutBlockExchange::before_step() {
  for (const OwnPart& own : storage_->own_parts()) {
    copy_(own.block_param, own.param, own.bytes);
    copy_(own.block_grad, own.grad, own.bytes);
  }
  exchange_.run(*communicator_, block_grads_, memory());
}

void CutBlockExchange::after_step() {
  for (const OwnPart& own : storage_->own_parts()) copy_(own.param, own.block_param, own.bytes);
}

void CutBlockExchange::complete() {
  for (const OwnPart& own : storage_->own_parts()) copy_(own.block_param, own.param, own.bytes);
  exchange_.run(*communicator_, block_params_, memory());
}

}  // namespace stepscope::topologies
