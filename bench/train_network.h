#pragma once

/// Purpose: the language model that train_step trains: a transformer over bytes, cut into the units
/// that FSDP gathers, so that each can be computed while only its own parameters are whole.
///
/// Usage:
///     const TrainNetwork network({.width = 64, .layers = 2});
///     at::Tensor x = network.embed(root, inputs);
///     for (...) x = network.block(parameters_of_the_block, x);
///     at::Tensor loss = network.loss(root, x, targets);
///
/// Caveats: includes libtorch. Tensors of a unit are given in the order of units()[u].

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topologies/model.h"

namespace stepscope::bench {

/// Bytes that one sequence shows the model, and that it has to foretell.
inline constexpr std::int64_t kContext = 64;

struct NetworkSize {
  std::int64_t width = 64;  ///< a multiple of kHeadWidth
  std::int64_t layers = 2;
};

/// Elements of one attention head.
inline constexpr std::int64_t kHeadWidth = 16;

class TrainNetwork {
 public:
  explicit TrainNetwork(NetworkSize size);

  /// Names and shapes, in the order of units(). The data type is fp32; a case may use another.
  const topologies::Model& model() const noexcept { return model_; }

  /// Indices into model().parameters: the root (embeddings, last norm, head) first, then one unit a
  /// block.
  const std::vector<std::vector<std::size_t>>& units() const noexcept { return units_; }

  /// The values training starts from, float32, the same in every process: norms are 1 and 0,
  /// everything else is normal with deviation 0.02.
  at::Tensor initial(std::size_t parameter) const;

  /// `inputs` [sequences, kContext] int64 bytes -> [sequences, kContext, width].
  at::Tensor embed(std::span<const at::Tensor> root, const at::Tensor& inputs) const;

  /// One transformer block; keeps the shape of `x`.
  at::Tensor block(std::span<const at::Tensor> unit, const at::Tensor& x) const;

  /// Mean cross entropy in nats a byte of `targets` [sequences, kContext]: a float32 scalar.
  at::Tensor loss(std::span<const at::Tensor> root, const at::Tensor& x,
                  const at::Tensor& targets) const;

 private:
  NetworkSize size_;
  topologies::Model model_;
  std::vector<std::vector<std::size_t>> units_;
};

}  // namespace stepscope::bench
