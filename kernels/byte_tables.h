#pragma once

/// Purpose: the two code tables and the quantizer as tables of bytes of at most 256 entries, for
/// processors that permute bytes across registers (AVX-512 VBMI) far faster than they gather.
///
/// Usage: kernels/codec_vbmi-inl.h looks codes up in `decode` and steps in the levels.
///
/// Caveats: the quantizer's index i (kernels/quantizer.h) is folded to j = i - 32768 for i >= 32768
/// and 32767 - i below, from 0 to 32767. Codes get coarser with j, so four tables with bins of
/// growing width hold at most one step of the code in a bin each:
///
///     level    j                     bin, signed    bin, unsigned
///     exact    below 64              1              1
///     fine     64 to 1023 or 511     16             8
///     middle   up to 4095            64             32
///     coarse   4096 to 32767         256            128
///
/// Signed codes of negative values are 254 minus those of positive ones, but never below 0. All
/// this is tested for every j.

#include <array>
#include <cstdint>

#include "kernels/quantizer.h"

namespace stepscope::kernels {

/// Bins of one width. Within bin b the code is code[b] up to the j whose low byte is last[b], and
/// one more above it; 255 where the bin has no step.
template <int kBins>
struct EncodeLevel {
  alignas(64) std::array<std::uint8_t, kBins> code;
  alignas(64) std::array<std::uint8_t, kBins> last;
};

struct SignedByteTables {
  /// Byte plane b of |value| of code 127 + k; k = 128, the value 1, is not in it.
  alignas(64) std::array<std::array<std::uint8_t, 128>, 4> decode;
  alignas(64) std::array<std::uint8_t, 64> exact;
  EncodeLevel<64> fine;
  EncodeLevel<64> middle;
  EncodeLevel<128> coarse;
};

struct UnsignedByteTables {
  /// Byte plane b of the value of a code.
  alignas(64) std::array<std::array<std::uint8_t, 256>, 4> decode;
  alignas(64) std::array<std::uint8_t, 64> exact;
  EncodeLevel<64> fine;
  EncodeLevel<128> middle;
  EncodeLevel<256> coarse;
};

/// Built at the first call.
const SignedByteTables& signed_byte_tables();
const UnsignedByteTables& unsigned_byte_tables();

}  // namespace stepscope::kernels
