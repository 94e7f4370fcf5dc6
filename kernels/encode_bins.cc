#include "kernels/encode_bins.h"

#include <bit>
#include <cstddef>

namespace stepscope::kernels {
namespace {

/// The code of y, a value on the quantizer's grid: with inverse 1 it is quantized as itself.
std::uint32_t code_of(CodeTable table, std::uint32_t bits) {
  const float y = std::bit_cast<float>(bits);
  return encode_table(table)[static_cast<std::size_t>(encode_index(y, 1.0f))];
}

EncodeBins build(CodeTable table, int shift) {
  EncodeBins bins;
  bins.shift = shift;
  bins.low_mask = (1u << shift) - 1;
  bins.entries.resize(std::size_t{1} << (32 - shift));
  for (std::size_t i = 0; i < bins.entries.size(); ++i) {
    const std::uint32_t first = static_cast<std::uint32_t>(i) << shift;
    const bool negative = first >> 31 != 0;
    const std::uint32_t code = code_of(table, first);
    // The bins of infinities and NaNs have one code each: their other members are NaNs that no
    // arithmetic gives.
    const bool finite = (first & 0x7f800000u) != 0x7f800000u;
    std::uint32_t same = 0;                   // low bits that still have `code`
    std::uint32_t other = bins.low_mask + 1;  // low bits that have not, or one beyond the bin
    if (finite && code_of(table, first | bins.low_mask) != code) other = bins.low_mask;
    while (other <= bins.low_mask && other - same > 1) {
      const std::uint32_t middle = same + (other - same) / 2;
      (code_of(table, first | middle) == code ? same : other) = middle;
    }
    bins.entries[i] = (code << shift) + (negative ? other - 1 : bins.low_mask + 1 - other);
  }
  return bins;
}

}  // namespace

const EncodeBins& encode_bins(CodeTable table) {
  static const EncodeBins kSigned = build(CodeTable::signed_codes, 17);
  static const EncodeBins kUnsigned = build(CodeTable::unsigned_codes, 16);
  return table == CodeTable::signed_codes ? kSigned : kUnsigned;
}

}  // namespace stepscope::kernels
