#pragma once

/// Purpose: the 8-bit quantizer of bitsandbytes' CPU back end: from float32 to codes.
///
/// Usage:
///     float absmax = 0; for (float x : block) absmax = larger_magnitude(absmax, x);
///     code = absmax == 0 ? 0 : encode_table(table)[encode_index(x, 1 / absmax)];
///
/// Caveats: it does not give the nearest code. The look-up works on a grid of 65,536 values, so the
/// signed codes 124 to 130, the one for zero among them, are never given, nor are ten of the low
/// unsigned ones. That is what bitsandbytes 0.50.2 does, and it is kept.

#include <array>
#include <cmath>
#include <cstdint>

namespace stepscope::kernels {

/// Which of the two code tables: signed for the first moment, unsigned for the second.
enum class CodeTable : std::uint8_t { signed_codes, unsigned_codes };

inline constexpr int kEncodeEntries = 65536;

/// Entry i is the code of -1 + 2i/65535: the one reached by advancing while the midpoint to the
/// next code is below that value. Built at the first call; never fails.
const std::array<std::uint8_t, kEncodeEntries>& encode_table(CodeTable table);

/// max(|x|, absmax) where a NaN in x is skipped.
inline float larger_magnitude(float absmax, float x) {
  const float magnitude = std::fabs(x);
  return magnitude > absmax ? magnitude : absmax;
}

/// The entry of the table for x, where `inverse` is 1 / absmax of its block. NaN gives entry 0, so
/// that the code of a NaN is 0 in both tables. An infinite absmax (inverse 0) makes every infinite
/// x a NaN, and an absmax below 2^-128 (inverse infinite) makes every zero one: this is what
/// bitsandbytes does too.
inline int encode_index(float x, float inverse) {
  float scaled = x * inverse;
  if (!(scaled > -1.0f)) scaled = -1.0f;
  if (scaled > 1.0f) scaled = 1.0f;
  return static_cast<int>((scaled + 1.0f) * 0.5f * 65535.0f + 0.5f);
}

}  // namespace stepscope::kernels
