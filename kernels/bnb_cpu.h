#pragma once

/// Purpose: the arithmetic `bnb-cpu`: what bitsandbytes 0.50.2 computes on a CPU for one element,
/// and the FP32 rule of torch.optim.AdamW. The scalar reference and every SIMD kernel are this.
///
/// Usage:
///     const Coefficients c = adamw_8bit_coefficients(hyperparameters, step);
///     m = adamw_moment1(c, g, m);  v = adamw_moment2(c, g, v);  p = adamw_8bit_param(c, p, m, v);
///
/// Caveats: scalars are computed in double and cast to float32 once; element arithmetic is float32,
/// in exactly this order, with every fused multiply-add written out. Compile with
/// -ffp-contract=off. Every function updates from the values before the step, except that the
/// parameter of AdamW uses the new moments.
/// Nothing guards against NaN and Inf, as in bitsandbytes: with 8-bit state a NaN in the gradient
/// spoils its element alone, while Inf makes the block's absmax Inf, which costs all 256 parameters
/// by AdamW's second step and shows in no parameter of Lion.

#include <cmath>
#include <cstdint>

#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

/// The scalars of one step, as float32. Fields that a rule does not use are 0.
struct Coefficients {
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float decay = 1;        ///< 1 - lr * weight_decay, or 1 without weight decay
  float correction2 = 1;  ///< sqrt(1 - beta2^t)
  float epsilon = 0;
  float step_size = 0;  ///< what multiplies the direction; negative
};

/// 8-bit AdamW and torch's AdamW: step_size = -lr / (1 - beta1^t).
Coefficients adamw_8bit_coefficients(const Hyperparameters& hyperparameters, std::int64_t step);

/// AdamW with FP32 state in bitsandbytes: step_size = -lr * c2 / (1 - beta1^t), epsilon * c2.
Coefficients adamw_fp32_coefficients(const Hyperparameters& hyperparameters, std::int64_t step);

/// Lion: step_size = -lr. The same with 8-bit and with FP32 state.
Coefficients lion_coefficients(const Hyperparameters& hyperparameters);

/// The coefficients for a shard by algorithm, state format and step.
Coefficients coefficients_of(Algorithm algorithm, const Hyperparameters& hyperparameters,
                             StateFormat format, std::int64_t step);

inline float adamw_moment1(const Coefficients& c, float g, float m) {
  return std::fma(g, c.one_minus_beta1, m * c.beta1);
}

inline float adamw_moment2(const Coefficients& c, float g, float v) {
  return std::fma(c.one_minus_beta2 * g, g, v * c.beta2);
}

/// The first moment of torch.optim.AdamW: Tensor.lerp_(grad, 1 - beta1), which torch computes from
/// the nearer end.
inline float torch_adamw_moment1(const Coefficients& c, float g, float m) {
  const float difference = g - m;
  if (c.one_minus_beta1 < 0.5f) return std::fma(c.one_minus_beta1, difference, m);
  return std::fma(c.one_minus_beta1 - 1.0f, difference, g);
}

/// The parameter of 8-bit AdamW and of torch's AdamW; m and v are the new moments.
inline float adamw_8bit_param(const Coefficients& c, float p, float m, float v) {
  const float denominator = std::sqrt(v) / c.correction2 + c.epsilon;
  return p * c.decay + (c.step_size * m) / denominator;
}

/// The parameter of AdamW with FP32 state; m and v are the new moments.
inline float adamw_fp32_param(const Coefficients& c, float p, float m, float v) {
  const float direction = m / (std::sqrt(v) + c.epsilon);
  return std::fma(direction, c.step_size, p * c.decay);
}

/// sign(x) with sign(NaN) = sign(0) = 0.
inline float sign_of(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : 0.0f); }

/// The parameter of 8-bit Lion; m is the moment before the step.
inline float lion_8bit_param(const Coefficients& c, float p, float g, float m) {
  return p * c.decay + c.step_size * sign_of(m * c.beta1 + g * c.one_minus_beta1);
}

/// The parameter of Lion with FP32 state: the direction is fused, which decides its sign where the
/// two products cancel.
inline float lion_fp32_param(const Coefficients& c, float p, float g, float m) {
  return p * c.decay + c.step_size * sign_of(std::fma(g, c.one_minus_beta1, m * c.beta1));
}

inline float lion_moment(const Coefficients& c, float g, float m) {
  return std::fma(g, c.one_minus_beta2, m * c.beta2);
}

}  // namespace stepscope::kernels
