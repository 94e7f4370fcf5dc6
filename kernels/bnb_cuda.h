#pragma once

/// Purpose: the arithmetic `bnb-cuda`: what bitsandbytes' CUDA kernels compute for AdamW8bit,
/// Lion8bit and their FP32-state fallback, once, for host and device.
///
/// Usage: `StepScalars s = step_scalars(round_hyperparameters(h), step);` once per tensor and step,
/// then per element adam_8bit_moments, adam_update, and so on. kernels/bnb_cuda_reference.h applies
/// them to whole shards on the host, kernels/cuda/cuda_step.h on the device.
///
/// Caveats: the structure is that of bitsandbytes 0.50.2 (kOptimizerStatic8bit*StateBlockwise and
/// kOptimizer32bit*State); its last bits are no target, because the wheel is built with fast maths.
/// Here every operation rounds once; what is fused is what the wheel's machine code fuses.
/// Quantization multiplies by the reciprocal of the absmax, as `__fdividef` does: an absmax below
/// 2^-128 has an infinite reciprocal, and every element of its block takes the code of +-absmax.
/// gnorm_scale is 1. This is not the arithmetic of bitsandbytes' CPU back end (`bnb-cpu`): Adam's
/// weight decay comes after the update, the nearest code is stored, and Adam skips elements whose
/// gradient is not finite.

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "kernels/code_tables.h"
#include "kernels/element.h"
#include "kernels/host_device.h"
#include "kernels/shard_tensors.h"

namespace stepscope::kernels::bnb_cuda {

/// Hyperparameters as the kernels see them: rounded to float32 before anything is computed.
struct RoundedHyperparameters {
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;
};

inline RoundedHyperparameters round_hyperparameters(const Hyperparameters& h) {
  return {static_cast<float>(h.learning_rate), static_cast<float>(h.beta1),
          static_cast<float>(h.beta2), static_cast<float>(h.epsilon),
          static_cast<float>(h.weight_decay)};
}

/// What an element's update needs of the hyperparameters and the step's number.
struct StepScalars {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;       ///< Adam: -(c2 * lr) / c1, where c1 = 1 - b1^t and c2 = sqrt(1 - b2^t)
  float c2;              ///< Adam
  float epsilon;         ///< Adam
  float learning_rate;   ///< Lion
  float decay;           ///< 1 - lr * weight_decay, applied only where `decays`
  std::uint32_t decays;  ///< weight_decay > 0, as 0 or 1
};

/// base^exponent in float64 by repeated squaring, rounded to float32. The sequence of operations is
/// fixed, so host and device agree bit for bit. The wheel takes an approximate power in float32.
STEPSCOPE_HOST_DEVICE float power(float base, std::int64_t exponent) {
  double result = 1.0;
  double square = static_cast<double>(base);
  for (std::int64_t rest = exponent; rest > 0; rest >>= 1) {
    if ((rest & 1) != 0) result = mul_rn(result, square);
    square = mul_rn(square, square);
  }
  return static_cast<float>(result);
}

/// `step` counts from 1.
STEPSCOPE_HOST_DEVICE StepScalars step_scalars(const RoundedHyperparameters& h, std::int64_t step) {
  const float c1 = sub_rn(1.0f, power(h.beta1, step));
  const float c2 = sqrt_rn(sub_rn(1.0f, power(h.beta2, step)));
  StepScalars s{};
  s.beta1 = h.beta1;
  s.one_minus_beta1 = sub_rn(1.0f, h.beta1);
  s.beta2 = h.beta2;
  s.one_minus_beta2 = sub_rn(1.0f, h.beta2);
  s.step_size = -div_rn(mul_rn(c2, h.learning_rate), c1);
  s.c2 = c2;
  s.epsilon = h.epsilon;
  s.learning_rate = h.learning_rate;
  s.decay = fma_rn(-h.learning_rate, h.weight_decay, 1.0f);
  s.decays = h.weight_decay > 0.0f ? 1u : 0u;
  return s;
}

struct Moments {
  float first;
  float second;  ///< unused by Lion
};

STEPSCOPE_HOST_DEVICE bool is_finite(float x) {
  return (float_bits(x) & 0x7fffffffu) < 0x7f800000u;
}

/// -1, 0 or 1; 0 for NaN.
STEPSCOPE_HOST_DEVICE float sign(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : 0.0f); }

/// New moments of 8-bit Adam. `old` are the decoded moments, code value times the block's absmax.
/// A gradient that is not finite resets both to 0 (and adam_update is not called for it).
STEPSCOPE_HOST_DEVICE Moments adam_8bit_moments(float g, Moments old, const StepScalars& s) {
  if (!is_finite(g)) return {0.0f, 0.0f};
  return {fma_rn(g, s.one_minus_beta1, mul_rn(old.first, s.beta1)),
          fma_rn(g, mul_rn(s.one_minus_beta2, g), mul_rn(old.second, s.beta2))};
}

/// New moments of Adam with float32 state. No guard: NaN and Inf go into the state.
STEPSCOPE_HOST_DEVICE Moments adam_fp32_moments(float g, Moments old, const StepScalars& s) {
  return {fma_rn(old.first, s.beta1, mul_rn(g, s.one_minus_beta1)),
          fma_rn(old.second, s.beta2, mul_rn(s.one_minus_beta2, mul_rn(g, g)))};
}

/// Adam's new parameter, rounded to kDType after the update and again after the decay that follows
/// it.
template <DType kDType>
STEPSCOPE_HOST_DEVICE float adam_update(float p, Moments m, const StepScalars& s) {
  const float quotient = div_rn(m.first, fma_rn(s.c2, s.epsilon, sqrt_rn(m.second)));
  const float updated = round_to<kDType>(fma_rn(s.step_size, quotient, p));
  return s.decays != 0 ? round_to<kDType>(mul_rn(s.decay, updated)) : updated;
}

/// 8-bit Lion's new parameter: decay first; the step itself is rounded to kDType. `old` is the
/// decoded first moment.
template <DType kDType>
STEPSCOPE_HOST_DEVICE float lion_8bit_update(float p, float g, float old, const StepScalars& s) {
  const float decayed = s.decays != 0 ? round_to<kDType>(mul_rn(s.decay, p)) : p;
  const float direction = sign(fma_rn(g, s.one_minus_beta1, mul_rn(old, s.beta1)));
  const float step = round_to<kDType>(mul_rn(s.learning_rate, direction));
  return round_to<kDType>(sub_rn(decayed, step));
}

STEPSCOPE_HOST_DEVICE float lion_8bit_moment(float g, float old, const StepScalars& s) {
  return fma_rn(g, s.one_minus_beta2, mul_rn(old, s.beta2));
}

/// Lion's new parameter with float32 state: as with 8 bits, but the step is not rounded to kDType.
template <DType kDType>
STEPSCOPE_HOST_DEVICE float lion_fp32_update(float p, float g, float old, const StepScalars& s) {
  const float decayed = s.decays != 0 ? round_to<kDType>(mul_rn(s.decay, p)) : p;
  const float direction = sign(fma_rn(old, s.beta1, mul_rn(g, s.one_minus_beta1)));
  return round_to<kDType>(sub_rn(decayed, mul_rn(s.learning_rate, direction)));
}

STEPSCOPE_HOST_DEVICE float lion_fp32_moment(float g, float old, const StepScalars& s) {
  return fma_rn(old, s.beta2, mul_rn(g, s.one_minus_beta2));
}

// -- quantization --------------------------------------------------------------------------------

/// The absmax of a block starts here, as in bitsandbytes: a block of NaN alone keeps this value.
inline constexpr float kEmptyAbsmax = -3.402823466e+38f;

/// What a lane past the end of the shard holds; it takes part in its block's absmax.
inline constexpr std::uint8_t kTailCode1 = 128;
inline constexpr std::uint8_t kTailCode2 = 0;

/// Midpoint between codes `code` and `code` + 1, in float32 as bitsandbytes computes it.
constexpr float midpoint(const std::array<std::uint32_t, 256>& table, std::size_t code) {
  return (std::bit_cast<float>(table[code]) + std::bit_cast<float>(table[code + 1])) * 0.5f;
}

/// The code nearest to `x`, ties to the even code; 0 for NaN. Host only; the device uses RankTable.
constexpr std::uint8_t nearest_code(const std::array<std::uint32_t, 256>& table, float x) {
  std::size_t low = 0;  // the answer is in [low, high]
  std::size_t high = 255;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const float border = midpoint(table, middle);
    const bool above = x > border || (x == border && middle % 2 == 1);
    if (above) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<std::uint8_t>(low);
}

/// Code of a first moment: the nearest one, then, where its sign bit differs from the moment's, one
/// up for a positive moment and one down otherwise, modulo 256. So +0 in an all-zero block gives
/// 255. The sign of a NaN counts as positive, as the device's arithmetic makes it. Host only.
inline std::uint8_t signed_code(float moment, float inverse_absmax) {
  const std::uint8_t code = nearest_code(kSignedCodeBits, moment * inverse_absmax);
  const bool code_negative = (kSignedCodeBits[code] >> 31) != 0;
  const bool moment_negative = moment == moment && (float_bits(moment) >> 31) != 0;
  if (code_negative == moment_negative) return code;
  return static_cast<std::uint8_t>(moment > 0.0f ? code + 1 : code - 1);
}

/// Code of a second moment: the nearest one. Host only.
inline std::uint8_t unsigned_code(float moment, float inverse_absmax) {
  return nearest_code(kUnsignedCodeBits, moment * inverse_absmax);
}

/// The nearest-code search as one look-up. Floats in [2^kLowestExponent, 1] are cut into bins by
/// exponent and kMantissaBits of the mantissa, narrow enough that a bin holds one border between
/// codes at most. A bin's entry is its first rank, shifted left by kShift, plus what makes a value
/// at or past the border carry into the next rank, less the bin's first bit pattern: adding the
/// value's own bits and shifting right gives the rank. Ranks count codes from `first_code`, whose
/// value is 0.
template <int kMantissaBits, int kLowestExponent>
struct RankTable {
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr std::uint32_t kOneBits = 127u << 23;
  static constexpr std::uint32_t kLowBits = static_cast<std::uint32_t>(127 + kLowestExponent) << 23;
  static constexpr std::size_t kSize = ((kOneBits - kLowBits) >> kShift) + 1;
  /// kSize rounded up to whole 16-byte words, for copying.
  static constexpr std::size_t kPaddedSize = (kSize + 3) / 4 * 4;
  using Entries = std::array<std::uint32_t, kPaddedSize>;

  static constexpr Entries build(const std::array<std::uint32_t, 256>& codes,
                                 std::size_t first_code) {
    Entries entries{};
    std::size_t code = first_code;
    for (std::size_t bin = 0; bin < kSize; ++bin) {
      const std::uint32_t first = kLowBits + (static_cast<std::uint32_t>(bin) << kShift);
      const std::uint32_t end = first + (1u << kShift);
      while (code < 255 && border_bits(codes, code) <= first) ++code;
      std::uint32_t entry = static_cast<std::uint32_t>(code - first_code) << kShift;
      if (code < 255 && border_bits(codes, code) < end) {
        entry += end - border_bits(codes, code);
        if (code + 1 < 255 && border_bits(codes, code + 1) < end) {
          throw std::logic_error("two borders in one bin: more mantissa bits are needed");
        }
      }
      entries[bin] = entry - first;
    }
    return entries;
  }

  /// Rank of a value whose bits are already clamped to [kLowBits, kOneBits].
  STEPSCOPE_HOST_DEVICE static std::uint32_t rank(const std::uint32_t* entries,
                                                  std::uint32_t clamped) {
    return (entries[(clamped >> kShift) - (kLowBits >> kShift)] + clamped) >> kShift;
  }

 private:
  /// Bits of the smallest float that gets code + 1 rather than code.
  static constexpr std::uint32_t border_bits(const std::array<std::uint32_t, 256>& codes,
                                             std::size_t code) {
    const std::uint32_t middle = std::bit_cast<std::uint32_t>(midpoint(codes, code));
    return code % 2 == 0 ? middle + 1 : middle;
  }
};

/// Codes 127 (zero) to 255 (one). Codes 0 to 126 are those of 254 down to 128 with the sign
/// changed.
using SignedRankTable = RankTable<6, -22>;
using UnsignedRankTable = RankTable<7, -23>;
inline constexpr std::uint32_t kZeroCode = 127;

/// signed_code by look-up in `entries` = SignedRankTable::build(kSignedCodeBits, 127), for an
/// `inverse_absmax` other than 0.
STEPSCOPE_HOST_DEVICE std::uint32_t fast_signed_code(const std::uint32_t* entries, float moment,
                                                     float inverse_absmax) {
  // NaN (0 * Inf of an all-zero block) clamps to the highest rank, and that is the sign rule's
  // answer.
  const std::uint32_t bits = float_bits(mul_rn(moment, inverse_absmax)) & 0x7fffffffu;
  const std::uint32_t low = bits > SignedRankTable::kLowBits ? bits : SignedRankTable::kLowBits;
  const std::uint32_t clamped = low < SignedRankTable::kOneBits ? low : SignedRankTable::kOneBits;
  const std::int32_t rank = static_cast<std::int32_t>(SignedRankTable::rank(entries, clamped));
  // A negative moment never takes the zero code, and -1 has no code of its own.
  const std::int32_t above_zero = rank > 1 ? rank : 1;
  const std::int32_t mirrored = above_zero < 127 ? above_zero : 127;
  const bool negative = moment == moment && (float_bits(moment) >> 31) != 0;
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(kZeroCode) +
                                    (negative ? -mirrored : rank));
}

/// signed_code where the absmax is Inf, so its reciprocal 0: the scaled moment is 0 or, for an
/// infinite moment, NaN with code 0, before the sign rule.
STEPSCOPE_HOST_DEVICE std::uint32_t signed_code_of_infinite_absmax(float moment) {
  if (moment != moment) return 255;
  const bool negative = (float_bits(moment) >> 31) != 0;
  if (is_finite(moment)) return negative ? kZeroCode - 1 : kZeroCode;
  return negative ? 0 : 1;
}

/// unsigned_code by look-up in `entries` = UnsignedRankTable::build(kUnsignedCodeBits, 0).
STEPSCOPE_HOST_DEVICE std::uint32_t fast_unsigned_code(const std::uint32_t* entries, float moment,
                                                       float inverse_absmax) {
  const float lowest = bits_float(UnsignedRankTable::kLowBits);
  const float scaled = mul_rn(moment, inverse_absmax);
  // Written so that NaN takes the lower bound, whose code is 0.
  const float low = scaled > lowest ? scaled : lowest;
  const float clamped = low < 1.0f ? low : 1.0f;
  return UnsignedRankTable::rank(entries, float_bits(clamped));
}

}  // namespace stepscope::kernels::bnb_cuda
