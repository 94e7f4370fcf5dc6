// Purpose: one backward pass's traffic through UnitExchange over real ranks, as JSON for
// unit_exchange_test.py, which compares it with PyTorch's.
//
// Usage:  unit_exchange_dump MODEL.json UNITS.json TOPOLOGY REPLICAS DTYPE
//
// Rank r's gradient of element i of parameter p is gradient(p, i, r), below and in the test. The
// first unit is the root: gathered once, reduced last. The others are gathered twice.

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/parse.h"
#include "core/program.h"
#include "topologies/load_model.h"
#include "topologies/torch_types.h"
#include "topologies/unit_exchange.h"

namespace stepscope::topologies {
namespace {

/// Exact in float32, neither in bf16 nor in fp16: sums must round as PyTorch's do.
float gradient(std::size_t parameter, std::int64_t i, std::int64_t rank) {
  const std::int64_t mixed =
      (i * 7919 + static_cast<std::int64_t>(parameter) * 104729 + rank * 1299709 + 1) % 65521;
  return static_cast<float>(mixed - 32760) / 8192.0F;
}

std::vector<at::Tensor> gradients_of(const Model& model, const std::vector<std::size_t>& unit,
                                     std::int64_t rank, kernels::DType dtype) {
  std::vector<at::Tensor> gradients;
  for (const std::size_t p : unit) {
    at::Tensor values = at::empty(model.parameters[p].shape, at::kFloat);
    auto* first = values.data_ptr<float>();
    for (std::int64_t i = 0; i < values.numel(); ++i) first[i] = gradient(p, i, rank);
    gradients.push_back(values.to(scalar_type(dtype)));
  }
  return gradients;
}

/// The elements' bits as unsigned numbers, padding left out.
nlohmann::json bits_of(const at::Tensor& grad, const LocalTensor& local) {
  nlohmann::json bits = nlohmann::json::array();
  const auto* bytes = static_cast<const std::byte*>(grad.data_ptr());
  const auto width = static_cast<std::size_t>(grad.element_size());
  for (const Range& range : local.ranges) {
    for (std::int64_t i = range.position; i < range.position + range.numel; ++i) {
      std::uint32_t value = 0;
      std::memcpy(&value, bytes + static_cast<std::size_t>(i) * width, width);
      bits.push_back(value);
    }
  }
  return bits;
}

int run(const std::vector<std::string>& words) {
  if (words.size() != 6) throw Error("give MODEL UNITS TOPOLOGY REPLICAS DTYPE");
  const Model model = load_model(words[1]);
  const Wrapping wrapping = load_wrapping(words[2]);
  const auto dtype = parse_dtype(words[5]);
  const auto rendezvous = rendezvous_from_environment();
  const auto communicator = connect_gloo(rendezvous, {});
  const ShardPlan plan =
      ShardPlan::make(model, {.topology = parse_topology(words[3]),
                              .world_size = communicator->world_size(),
                              .replicas = parse_int("REPLICAS", words[4], 1, 1000),
                              .wrapping = wrapping});
  const std::int64_t rank = communicator->rank();
  const auto locals = plan.local_tensors(rank);
  const auto type = at::TensorOptions().dtype(scalar_type(dtype));
  std::vector<at::Tensor> params, grads;
  std::vector<LocalView> views;
  for (const LocalTensor& local : locals) {
    params.push_back(at::zeros({local.padded_numel}, type));
    grads.push_back(at::zeros({local.padded_numel}, type));
    views.push_back({.ranges = local.ranges,
                     .numel = local.numel,
                     .param = params.back().data_ptr(),
                     .grad = grads.back().data_ptr()});
  }
  UnitExchange exchange(model, plan, wrap(model, wrapping), dtype, Device::cpu, *communicator);
  const auto gather = [&](std::size_t unit) {
    if (!exchange.sharded()) return;
    std::vector<at::Tensor> whole;
    for (const std::size_t p : exchange.parameters(unit)) {
      whole.push_back(at::empty(model.parameters[p].shape, type));
    }
    exchange.gather(unit, views, whole);
  };
  const auto reduce = [&](std::size_t unit) {
    exchange.reduce(unit, gradients_of(model, exchange.parameters(unit), rank, dtype), views);
  };
  for (std::size_t unit = 0; unit < exchange.unit_count(); ++unit) gather(unit);
  for (std::size_t unit = exchange.unit_count(); unit-- > 1;) {
    gather(unit);
    reduce(unit);
  }
  reduce(0);
  exchange.finish(views);

  nlohmann::json json = {{"collectives", nlohmann::json::array()}};
  for (const CollectiveRecord& record : exchange.take_records()) {
    json["collectives"].push_back({collective_name(record.kind), record.numel});
  }
  for (std::size_t i = 0; i < locals.size(); ++i) {
    std::string name;
    for (const std::size_t p : plan.parameters(i)) {
      name += (name.empty() ? "" : " ") + model.parameters[p].name;
    }
    json["gradients"][name] = bits_of(grads[i], locals[i]);
  }
  std::printf("%s\n", json.dump().c_str());
  return kFine;
}

}  // namespace
}  // namespace stepscope::topologies

int main(int argc, char** argv) {
  return stepscope::run_program("unit_exchange_dump",
                                [&] { return stepscope::topologies::run({argv, argv + argc}); });
}
