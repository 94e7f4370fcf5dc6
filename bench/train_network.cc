#include "bench/train_network.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <string>

#include "core/error.h"

namespace stepscope::bench {
namespace {

constexpr std::int64_t kBytes = 256;
constexpr std::int64_t kSeed = 20'260'101;

// Places within a unit.
enum Root : std::size_t { kEmbed, kPosition, kLastScale, kLastShift, kHead };
enum Block : std::size_t { kScale1, kShift1, kQkv, kOut, kScale2, kShift2, kUp, kDown };

}  // namespace

TrainNetwork::TrainNetwork(NetworkSize size) : size_(size) {
  const std::int64_t width = size.width;
  if (width < kHeadWidth || width % kHeadWidth != 0) {
    throw Error("a width of " + std::to_string(width) + " has no whole number of heads",
                "give a multiple of " + std::to_string(kHeadWidth));
  }
  model_.name = "bytes-" + std::to_string(size.layers) + "x" + std::to_string(width);
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    units_.back().push_back(model_.parameters.size());
    model_.parameters.push_back({.name = name, .shape = std::move(shape)});
  };
  units_.emplace_back();
  add("embed.weight", {kBytes, width});
  add("position.weight", {kContext, width});
  add("norm.weight", {width});
  add("norm.bias", {width});
  add("head.weight", {kBytes, width});
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string prefix = "blocks." + std::to_string(layer) + ".";
    units_.emplace_back();
    add(prefix + "norm1.weight", {width});
    add(prefix + "norm1.bias", {width});
    add(prefix + "attention.qkv.weight", {3 * width, width});
    add(prefix + "attention.out.weight", {width, width});
    add(prefix + "norm2.weight", {width});
    add(prefix + "norm2.bias", {width});
    add(prefix + "mlp.up.weight", {4 * width, width});
    add(prefix + "mlp.down.weight", {width, 4 * width});
  }
  topologies::validate(model_);
}

at::Tensor TrainNetwork::initial(std::size_t parameter) const {
  const topologies::Parameter& p = model_.parameters.at(parameter);
  if (p.shape.size() == 1) return at::full(p.shape, p.name.ends_with("weight") ? 1.0 : 0.0);
  const auto generator =
      at::detail::createCPUGenerator(static_cast<std::uint64_t>(kSeed) + parameter);
  return at::empty(p.shape, at::kFloat).normal_(0, 0.02, generator);
}

at::Tensor TrainNetwork::embed(std::span<const at::Tensor> root, const at::Tensor& inputs) const {
  const at::Tensor places = at::arange(inputs.size(1), at::kLong);
  return at::embedding(root[kEmbed], inputs) + at::embedding(root[kPosition], places);
}

at::Tensor TrainNetwork::block(std::span<const at::Tensor> unit, const at::Tensor& x) const {
  const std::int64_t heads = size_.width / kHeadWidth;
  const std::vector<std::int64_t> norm = {size_.width};
  at::Tensor h = at::layer_norm(x, norm, unit[kScale1], unit[kShift1]);
  // [sequences, places, 3, heads, kHeadWidth] -> 3 x [sequences, heads, places, kHeadWidth]
  const auto qkv = at::linear(h, unit[kQkv])
                       .view({x.size(0), x.size(1), 3, heads, kHeadWidth})
                       .permute({2, 0, 3, 1, 4})
                       .unbind(0);
  h = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, /*is_causal=*/true);
  const at::Tensor y = x + at::linear(h.transpose(1, 2).reshape(x.sizes()), unit[kOut]);
  h = at::layer_norm(y, norm, unit[kScale2], unit[kShift2]);
  return y + at::linear(at::gelu(at::linear(h, unit[kUp])), unit[kDown]);
}

at::Tensor TrainNetwork::loss(std::span<const at::Tensor> root, const at::Tensor& x,
                              const at::Tensor& targets) const {
  const at::Tensor h = at::layer_norm(x, {size_.width}, root[kLastScale], root[kLastShift]);
  const at::Tensor logits = at::linear(h, root[kHead]).to(at::kFloat);
  return at::cross_entropy_loss(logits.view({-1, kBytes}), targets.reshape(-1));
}

}  // namespace stepscope::bench
