#pragma once

/// Purpose: x / c for many x and one c, rounded as the division instruction rounds, with one
/// multiplication and two fused multiply-adds: dividers are the slowest units of a processor, and
/// AdamW8bit already needs one for the square root and one for the update.
///
/// Usage:
///     const float reciprocal = 1.0f / c;  // rounded to nearest
///     const float quotient = divide_by_constant(x, c, reciprocal);  // == x / c
///
/// Caveats: for x = 0 and for normal x and c whose quotient, and x times 2^-24, are normal, too;
/// the square roots of non-negative float32 numbers over a c from 2^-27 to 1 are.
///
/// Why it is exact. The first product is within 1.5 units in the last place (ulp) of x / c; the
/// remainder and the correction carry the error of the reciprocal and one rounding, so that the
/// sum before its rounding is off by less than 5 parts in 2^50 of the significands' products. A
/// wrong result therefore needs a quotient that close to the middle of two float32 numbers, that
/// is significands X and C (integers of 24 bits) and an odd M of 25 bits with
/// 1 <= |X * 2^s - M * C| <= 5, s = 24 or 25. For each C those are a few X, and the tests try all
/// of them for all 2^23 values of C.

#include <cmath>

namespace stepscope::kernels {

/// x / divisor; `reciprocal` is 1.0f / divisor.
inline float divide_by_constant(float x, float divisor, float reciprocal) {
  const float quotient = x * reciprocal;
  const float remainder = std::fma(-quotient, divisor, x);
  return std::fma(remainder, reciprocal, quotient);
}

}  // namespace stepscope::kernels
