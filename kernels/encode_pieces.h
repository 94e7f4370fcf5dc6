#pragma once

/// Purpose: the quantizer (kernels/quantizer.h) as five straight pieces, for SIMD kernels that can
/// choose among eight numbers in a register but not look up 65,536.
///
/// Usage, for j from 0 to 32767, the entry's distance from the middle of the table:
///     piece = how many of last_index are below j
///     code = min(trunc(fma(slope[piece], x, offset[piece])), last_code[piece])
///     code += j > last_before_top
/// Unsigned: the entry is 32768 + j, and so is x. Signed: the entry is 32768 + j and its code 127 +
/// code, or it is 32767 - j and its code max(127 - code, 0); x is j.
///
/// Caveats: exact for every j, which is tested. A piece is a decade of the code's values, within
/// which its steps are evenly wide; its last code is cut off since the step between two decades is
/// as wide as their mean, and the step to the code of 1 is narrower than its decade's. Slope and
/// offset lie in the middle of those that are exact. Pieces beyond the fifth do not occur.

#include <array>
#include <cstdint>

namespace stepscope::kernels {

struct EncodePieces {
  std::array<std::int16_t, 4> last_index;  ///< the last j of each piece but the fifth
  std::int16_t last_before_top;            ///< the last j whose code is not that of 1
  std::array<float, 8> slope;
  std::array<float, 8> offset;
  std::array<std::uint8_t, 16> last_code;
};

inline constexpr EncodePieces kSignedPieces = {
    .last_index = {2, 35, 345, 3368},
    .last_before_top = 32651,
    .slope = {0x1p+0f, 0x1.1c71c8p-2f, 0x1.bc2504p-5f, 0x1.63904ep-7f, 0x1.1c72dep-9f},
    .offset = {0x1.2p+2f, 0x1.c8e38ep+2f, 0x1.c83158p+3f, 0x1.c73226p+4f, 0x1.c71ea2p+5f},
    .last_code = {6, 15, 31, 63, 127},
};

inline constexpr EncodePieces kUnsignedPieces = {
    .last_index = {3, 34, 336, 3322},
    .last_before_top = 32709,
    .slope = {0x1.4p+1f, 0x1.13b13cp-1f, 0x1.bc609ap-4f, 0x1.63904ep-6f, 0x1.1c72dep-8f},
    .offset = {-0x1.3ff84p+16f, -0x1.137aeep+14f, -0x1.b8f086p+11f, -0x1.479d36p+9f,
               -0x1.d71c4p+4f},
    .last_code = {14, 30, 62, 126, 254},
};

}  // namespace stepscope::kernels
