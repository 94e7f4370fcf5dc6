#pragma once

/// Purpose: the optimizers under test, by the names users know from the libraries.
///
/// Usage:  const Optimizer optimizer = parse_optimizer("AdamW8bit");

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/shard_tensors.h"

namespace stepscope::topologies {

enum class Optimizer {
  AdamW8bit,  ///< bitsandbytes' AdamW8bit (blockwise)
  Lion8bit,   ///< bitsandbytes' Lion8bit (blockwise)
  AdamW,      ///< FP32 state: PyTorch's AdamW
};

/// Below this number of elements bitsandbytes keeps FP32 state (its default min_8bit_size).
inline constexpr std::int64_t kMin8bitSize = 4096;

/// All of them, in the order of the enumeration.
const std::vector<Optimizer>& all_optimizers();

/// "AdamW8bit", "Lion8bit" or "AdamW".
std::string_view optimizer_name(Optimizer optimizer);

/// The inverse of optimizer_name, case-sensitive. Throws Error listing the names otherwise; for
/// paged optimizers, LAMB, LARS and AdEMAMix it says what they would need.
Optimizer parse_optimizer(std::string_view name);

kernels::Algorithm algorithm(Optimizer optimizer);

/// Moments an element has: 2 for AdamW, 1 for Lion.
int moment_count(Optimizer optimizer);

/// Whether it asks for 8-bit state where the size allows it.
bool asks_8bit(Optimizer optimizer);

/// The defaults of bitsandbytes 0.50.2 and PyTorch 2.13: AdamW and AdamW8bit lr 1e-3, betas (0.9,
/// 0.999), eps 1e-8, weight decay 0.01; Lion8bit lr 1e-4, betas (0.9, 0.99), no weight decay.
kernels::Hyperparameters default_hyperparameters(Optimizer optimizer);

}  // namespace stepscope::topologies
