#pragma once

/// Purpose: the quantizer (kernels/quantizer.h) as a table over float32 bit patterns that stays in
/// the L1 cache, for SIMD kernels that have a gather but no byte permutation across a register.
///
/// Usage, for y = (x * inverse + 1) - 1, where the last two operations round to float32:
///     bits = bit_cast(y);  entry = bins.entries[bits >> bins.shift];  low = bits & bins.low_mask;
///     code = (y negative ? entry - low : entry + low) >> bins.shift;
///
/// Caveats: exact for every x and inverse, NaN, infinities and blocks of zeros (inverse infinite)
/// among them, because every y falls in a bin that holds at most one step of the code; that is
/// tested for all y. y is exact: it only takes away the 1 that rounded x * inverse to the grid the
/// quantizer works on.

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/quantizer.h"

namespace stepscope::kernels {

/// Entries have the code at the bin's low end above bit `shift`, and below it what makes the low
/// bits of y carry into (of a negative y: borrow from) the code at the step of the bin.
struct EncodeBins {
  int shift = 0;
  std::uint32_t low_mask = 0;  ///< 2^shift - 1
  std::vector<std::uint32_t> entries;
};

/// The bins of a table, built at the first call: shift 17 for signed codes, 16 for unsigned ones,
/// whose steps are half as wide.
const EncodeBins& encode_bins(CodeTable table);

}  // namespace stepscope::kernels
