#include "bench/training_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/api/include/torch/utils.h>

#include "topologies/torch_types.h"
#include "tracer/range.h"

namespace stepscope::bench {
namespace {

using topologies::LocalView;

/// Gives a tensor's storage `bytes` of fresh memory, or takes it away. Views that autograd has kept
/// see the same storage, and no version is counted: it is what PyTorch's FSDP does.
void set_memory(const at::Tensor& tensor, std::size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

std::size_t whole_bytes(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
}

at::Tensor leaf(const at::Tensor& tensor) { return tensor.detach().requires_grad_(true); }

}  // namespace

TrainingStep::TrainingStep(const TrainNetwork& network, const topologies::ShardPlan& plan,
                           const topologies::StepConfig& config,
                           topologies::ShardedOptimizer& optimizer,
                           topologies::Communicator& communicator)
    : network_(network),
      optimizer_(optimizer),
      exchange_(network.model(), plan, network.units(), config.dtype, config.device, communicator),
      local_(optimizer.local_views()) {
  const auto type = at::TensorOptions().dtype(topologies::scalar_type(config.dtype));
  const auto& parameters = network.model().parameters;
  std::vector<at::Tensor> tensors(parameters.size());
  if (!exchange_.sharded()) {
    for (const LocalView& view : local_) {
      for (const topologies::Range& range : view.ranges) {
        auto* first = static_cast<std::byte*>(view.param) +
                      range.position * kernels::element_bytes(config.dtype);
        tensors[range.parameter] = at::from_blob(first, parameters[range.parameter].shape, type);
      }
    }
  }
  for (const auto& unit : network.units()) {
    std::vector<at::Tensor> whole;
    for (const std::size_t p : unit) {
      at::Tensor tensor = exchange_.sharded() ? at::empty(parameters[p].shape, type) : tensors[p];
      whole.push_back(tensor.requires_grad_(true));
    }
    whole_.push_back(std::move(whole));
    release(whole_.size() - 1);
  }
}

void TrainingStep::start() {
  optimizer_.restart();
  for (const LocalView& view : local_) {
    for (const topologies::Range& range : view.ranges) {
      // The data type of the whole tensors is that of the shards.
      const auto type = whole_.front().front().options().requires_grad(false);
      auto* first = static_cast<std::byte*>(view.param) +
                    range.position * static_cast<std::int64_t>(type.dtype().itemsize());
      at::from_blob(first, {range.numel}, type)
          .copy_(network_.initial(range.parameter).view(-1).narrow(0, range.offset, range.numel));
    }
  }
  optimizer_.resume(std::vector<std::int64_t>(optimizer_.shards().size()));
}

float TrainingStep::run(const TextBatch& batch) {
  exchange_.take_records();
  const std::size_t units = whole_.size();
  std::vector<at::Tensor> inputs(units);   // of each block and, first, of the head
  std::vector<at::Tensor> outputs(units);  // of each block and, first, of the embedding
  const at::Tensor loss = forward(inputs, outputs, batch);
  {
    const tracer::Range phase("phase backward");
    backward(inputs, outputs, loss);
    exchange_.finish(local_);
  }
  {
    const tracer::Range phase("phase optimizer");
    optimizer_.step();
  }
  collectives_ = exchange_.take_records();
  return loss.item<float>();
}

at::Tensor TrainingStep::forward(std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs,
                                 const TextBatch& batch) {
  const tracer::Range phase("phase forward");
  gather(0);
  outputs[0] = network_.embed(whole_[0], batch.inputs);
  at::Tensor x = outputs[0];
  for (std::size_t unit = 1; unit < whole_.size(); ++unit) {
    gather(unit);
    inputs[unit] = leaf(x);
    x = outputs[unit] = network_.block(whole_[unit], inputs[unit]);
    release(unit);
  }
  inputs[0] = leaf(x);
  return network_.loss(whole_[0], inputs[0], batch.targets);
}

void TrainingStep::backward(std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs,
                            const at::Tensor& loss) {
  loss.backward();
  at::Tensor gradient = inputs[0].grad();
  for (std::size_t unit = whole_.size(); unit-- > 1;) {
    gather(unit);
    outputs[unit].backward(gradient);
    gradient = inputs[unit].grad();
    // The graph, with what it has kept for the backward pass, is not needed any more.
    outputs[unit].reset();
    inputs[unit].reset();
    reduce(unit);
    release(unit);
  }
  outputs[0].backward(gradient);
  reduce(0);
  release(0);
}

float TrainingStep::evaluate(const TextBatch& batch) {
  const torch::NoGradGuard no_grad;
  gather(0);
  at::Tensor x = network_.embed(whole_[0], batch.inputs);
  for (std::size_t unit = 1; unit < whole_.size(); ++unit) {
    gather(unit);
    x = network_.block(whole_[unit], x);
    release(unit);
  }
  const auto loss = network_.loss(whole_[0], x, batch.targets).item<float>();
  release(0);
  exchange_.take_records();
  return loss;
}

void TrainingStep::gather(std::size_t unit) {
  if (!exchange_.sharded()) return;
  for (const at::Tensor& tensor : whole_[unit]) set_memory(tensor, whole_bytes(tensor));
  exchange_.gather(unit, local_, whole_[unit]);
}

void TrainingStep::release(std::size_t unit) {
  if (!exchange_.sharded()) return;
  for (const at::Tensor& tensor : whole_[unit]) set_memory(tensor, 0);
}

void TrainingStep::reduce(std::size_t unit) {
  std::vector<at::Tensor> gradients;
  for (at::Tensor& tensor : whole_[unit]) {
    gradients.push_back(tensor.grad());
    tensor.mutable_grad().reset();
  }
  exchange_.reduce(unit, gradients, local_);
}

}  // namespace stepscope::bench
