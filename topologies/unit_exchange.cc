#include "topologies/unit_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "topologies/torch_types.h"

namespace stepscope::topologies {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

/// The plan's unit of every parameter; kNone for a tied one.
std::vector<std::size_t> plan_units(const Model& model, const ShardPlan& plan) {
  std::vector<std::size_t> unit_of(model.parameters.size(), kNone);
  for (std::size_t unit = 0; unit < plan.unit_count(); ++unit) {
    for (const std::size_t parameter : plan.parameters(unit)) unit_of[parameter] = unit;
  }
  return unit_of;
}

/// The plan's units that make up a unit of the exchange, ascending. Marks them in `taken`.
std::vector<std::size_t> tensors_of(const Model& model, const ShardPlan& plan,
                                    const std::vector<std::size_t>& parameters,
                                    const std::vector<std::size_t>& unit_of,
                                    std::vector<bool>& taken) {
  std::vector<std::size_t> tensors;
  std::size_t members = 0;
  for (const std::size_t parameter : parameters) {
    const std::string& name = model.parameters.at(parameter).name;
    const std::size_t tensor = unit_of[parameter];
    if (tensor == kNone) {
      throw Error("a tied parameter has no storage that could be gathered",
                  "name its owner instead", {.parameter = name});
    }
    if (!tensors.empty() && tensors.back() == tensor) continue;
    if (taken[tensor]) {
      throw Error("the parameter is gathered by two units", "put it into one", {.parameter = name});
    }
    taken[tensor] = true;
    tensors.push_back(tensor);
    members += plan.parameters(tensor).size();
  }
  if (members != parameters.size()) {
    throw Error("a unit of the exchange is not made of whole units of the plan",
                "under fsdp1 give the plan's own units");
  }
  return tensors;
}

/// PyTorch divides by this before a sum in a narrow data type, and by ranks / it afterwards.
double divisor_before(std::int64_t ranks) {
  std::int64_t divisor = 1;
  while (ranks % divisor == 0 && ranks / divisor > divisor) divisor *= 2;
  return static_cast<double>(divisor);
}

void divide(at::Tensor& tensor, double divisor) {
  if (divisor != 1) tensor.div_(divisor);
}

}  // namespace

UnitExchange::UnitExchange(const Model& model, const ShardPlan& plan,
                           std::vector<std::vector<std::size_t>> units, kernels::DType dtype,
                           Device device, Communicator& communicator)
    : topology_(plan.topology()),
      shards_(plan.shards()),
      replicas_(plan.replicas()),
      dtype_(dtype),
      options_(at::TensorOptions()
                   .dtype(scalar_type(dtype))
                   .device(device == Device::cpu ? at::kCPU : at::kCUDA)),
      division_(division(plan.topology(), dtype, plan.world_size())),
      shard_group_(&communicator),
      replica_group_(&communicator) {
  const auto unit_of = plan_units(model, plan);
  std::vector<bool> taken(plan.unit_count());
  for (auto& parameters : units) {
    const auto tensors = tensors_of(model, plan, parameters, unit_of, taken);
    Unit unit;
    unit.whole = lay_out(plan, parameters, tensors, /*only_stepped=*/false);
    unit.stepped = lay_out(plan, parameters, tensors, /*only_stepped=*/true);
    unit.parameters = std::move(parameters);
    units_.push_back(std::move(unit));
  }
  const auto missing = std::find(taken.begin(), taken.end(), false);
  if (missing != taken.end()) {
    const auto tensor = static_cast<std::size_t>(missing - taken.begin());
    throw Error("the parameter is in no unit of the exchange", "put every parameter into one",
                {.parameter = model.parameters[plan.parameters(tensor).front()].name});
  }
  if (topology_ == Topology::hsdp) {
    split_shards_ = communicator.split(communicator.rank() / shards_);
    split_replicas_ = communicator.split(communicator.rank() % shards_);
    shard_group_ = split_shards_.get();
    replica_group_ = split_replicas_.get();
  }
  if (topology_ == Topology::ddp) {
    std::vector<std::int64_t> numels;
    for (const LocalTensor& local : plan.local_tensors(communicator.rank())) {
      numels.push_back(local.stepped ? local.numel : 0);
    }
    buckets_.emplace(std::move(numels), dtype, options_.device(), communicator);
  }
}

UnitExchange::Layout UnitExchange::lay_out(const ShardPlan& plan,
                                           const std::vector<std::size_t>& parameters,
                                           const std::vector<std::size_t>& tensors,
                                           bool only_stepped) {
  Layout layout;
  const auto index = [&](std::size_t parameter) {
    const auto place = std::find(parameters.begin(), parameters.end(), parameter);
    return static_cast<std::size_t>(place - parameters.begin());
  };
  for (const std::size_t tensor : tensors) {
    const LocalTensor local = plan.local_tensor(tensor, 0);
    if (only_stepped && !local.stepped) continue;
    layout.tensors.push_back(tensor);
    layout.firsts.push_back(index(plan.parameters(tensor).front()));
    layout.starts.push_back(layout.chunk);
    layout.numels.push_back(local.padded_numel);
    layout.chunk += local.padded_numel;
  }
  for (std::int64_t shard = 0; shard < plan.shards(); ++shard) {
    for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
      for (const Range& range : plan.local_tensor(layout.tensors[i], shard).ranges) {
        layout.pieces.push_back(
            {.parameter = index(range.parameter),
             .offset = range.offset,
             .numel = range.numel,
             .position = shard * layout.chunk + layout.starts[i] + range.position});
      }
    }
  }
  return layout;
}

UnitExchange::Division UnitExchange::division(Topology topology, kernels::DType dtype,
                                              std::int64_t ranks) {
  const bool fsdp2 = topology == Topology::fsdp2 || topology == Topology::hsdp;
  if (fsdp2 && dtype != kernels::DType::fp16) return {.reduction = Reduction::mean};
  if (!fsdp2 && topology != Topology::fsdp1) return {};
  const double before = divisor_before(ranks);
  return {.before = before, .after = static_cast<double>(ranks) / before};
}

at::Tensor UnitExchange::view(void* data, std::int64_t numel) const {
  return at::from_blob(data, {numel}, options_);
}

void UnitExchange::gather(std::size_t unit, std::span<const LocalView> local,
                          std::span<const at::Tensor> whole) {
  const Layout& layout = units_.at(unit).whole;
  at::Tensor chunk = at::empty({layout.chunk}, options_);
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    chunk.narrow(0, layout.starts[i], layout.numels[i])
        .copy_(view(local[layout.tensors[i]].param, layout.numels[i]));
  }
  at::Tensor all = chunk;
  if (shards_ > 1 && layout.chunk > 0) {
    all = at::empty({shards_ * layout.chunk}, options_);
    shard_group_->all_gather_into(dtype_, chunk.data_ptr(), layout.chunk, all.data_ptr());
    record(CollectiveKind::all_gather, layout.chunk);
  }
  for (const Piece& piece : layout.pieces) {
    // From the pointer: a write through the tensor would count as a change that autograd refuses.
    auto* first = static_cast<std::byte*>(whole[piece.parameter].data_ptr()) +
                  piece.offset * kernels::element_bytes(dtype_);
    view(first, piece.numel).copy_(all.narrow(0, piece.position, piece.numel));
  }
}

at::Tensor UnitExchange::packed(const Layout& layout, std::span<const at::Tensor> gradients) const {
  at::Tensor all = at::zeros({shards_ * layout.chunk}, options_);
  for (const Piece& piece : layout.pieces) {
    const at::Tensor& gradient = gradients[piece.parameter];
    if (!gradient.defined()) continue;
    all.narrow(0, piece.position, piece.numel)
        .copy_(gradient.reshape(-1).narrow(0, piece.offset, piece.numel));
  }
  return all;
}

void UnitExchange::reduce(std::size_t unit, std::span<const at::Tensor> gradients,
                          std::span<const LocalView> local) {
  const Layout& layout = units_.at(unit).stepped;
  units_[unit].reduced = true;
  if (buckets_) {
    // A unit's last parameters first: buckets are filled in the order of the backward pass.
    for (std::size_t i = layout.tensors.size(); i-- > 0;) {
      const std::int64_t reduced = buckets_->put(layout.tensors[i], gradients[layout.firsts[i]]);
      if (reduced > 0) record(CollectiveKind::all_reduce, reduced);
    }
    return;
  }
  if (layout.chunk == 0) return;
  at::Tensor all = packed(layout, gradients);
  at::Tensor chunk = all;
  divide(all, division_.before);
  if (shards_ > 1) {
    chunk = at::empty({layout.chunk}, options_);
    shard_group_->reduce_scatter(dtype_, division_.reduction, all.data_ptr(), layout.chunk,
                                 chunk.data_ptr());
    record(CollectiveKind::reduce_scatter, shards_ * layout.chunk);
  }
  if (replicas_ > 1) {
    replica_group_->all_reduce(dtype_, division_.reduction, chunk.data_ptr(), layout.chunk);
    record(CollectiveKind::all_reduce, layout.chunk);
  }
  divide(chunk, division_.after);
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    view(local[layout.tensors[i]].grad, layout.numels[i])
        .copy_(chunk.narrow(0, layout.starts[i], layout.numels[i]));
  }
}

void UnitExchange::finish(std::span<const LocalView> local) {
  for (Unit& unit : units_) {
    if (!unit.reduced) throw Error("a unit's gradients were not reduced before the step");
    unit.reduced = false;
  }
  if (!buckets_) return;
  buckets_->reset();
  for (std::size_t i = 0; i < local.size(); ++i) {
    if (local[i].grad != nullptr && local[i].numel > 0) {
      buckets_->take(i, view(local[i].grad, local[i].numel));
    }
  }
}

std::vector<CollectiveRecord> UnitExchange::take_records() { return std::exchange(records_, {}); }

}  // namespace stepscope::topologies
