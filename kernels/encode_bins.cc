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
    const std::uint32_t flip = first >> 31 != 0 ? 255u : 0u;
    const std::uint32_t code = code_of(table, first) ^ flip;
    std::uint32_t entry = code << shift;
    // A bin of NaNs (all but the first of the highest exponent) has one code; so has the bin of
    // infinity, whose other members are signalling NaNs that no arithmetic gives.
    const bool beyond_finite = (first & 0x7f800000u) == 0x7f800000u;
    if (!beyond_finite && (code_of(table, first | bins.low_mask) ^ flip) != code) {
      std::uint32_t low = 0;               // has `code`
      std::uint32_t high = bins.low_mask;  // has the next
      while (high - low > 1) {
        const std::uint32_t middle = low + (high - low) / 2;
        ((code_of(table, first | middle) ^ flip) == code ? low : high) = middle;
      }
      entry += bins.low_mask + 1 - high;
    }
    bins.entries[i] = entry;
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
