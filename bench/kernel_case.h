#pragma once

/// Purpose: what one benchmark of kernel_step is about: whose optimizer, which, and over what
/// tensor.
///
/// Usage:  const KernelCase c{Implementation::native, KernelOptimizer::AdamW8bit, DType::fp32,
/// 4096};

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/shard_tensors.h"

namespace stepscope::bench {

enum class Implementation : std::uint8_t {
  native,        ///< this project's kernels
  torch,         ///< PyTorch's fused AdamW; its state has the parameter's dtype
  bitsandbytes,  ///< its Python optimizer
  torchao,       ///< its Python optimizer
};

enum class KernelOptimizer : std::uint8_t {
  AdamW8bit,
  Lion8bit,
  AdamW,  ///< moments in FP32, but PyTorch's
};

struct KernelCase {
  Implementation implementation = Implementation::native;
  KernelOptimizer optimizer = KernelOptimizer::AdamW8bit;
  kernels::DType dtype = kernels::DType::fp32;
  std::int64_t numel = 0;

  /// "KernelStep/<subject>/<optimizer>/<dtype>/<n>"
  std::string benchmark_name() const;

  /// Bytes of param, grad, state1, state2, absmax1, absmax2; 0 where the case has no such tensor.
  std::array<std::int64_t, 6> tensor_bytes() const;

  /// Bytes that a step reads and writes: the gradient once, all others twice.
  std::int64_t moved_bytes() const;

  /// Codes and absmaxes, or moments.
  std::int64_t moment_bytes() const;
};

/// "native", "torch", "bitsandbytes" or "torchao".
std::string_view implementation_name(Implementation implementation);

/// Whether it runs in a Python process of its own (kernel_peers.h).
constexpr bool is_peer(Implementation implementation) {
  return implementation == Implementation::bitsandbytes ||
         implementation == Implementation::torchao;
}

std::string_view optimizer_name(KernelOptimizer optimizer);

}  // namespace stepscope::bench
