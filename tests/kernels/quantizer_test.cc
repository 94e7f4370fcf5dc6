#include "kernels/quantizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "kernels/code_tables.h"
#include "kernels/encode_pieces.h"

namespace stepscope::kernels {
namespace {

constexpr CodeTable kTables[] = {CodeTable::signed_codes, CodeTable::unsigned_codes};

std::uint8_t encode(CodeTable table, float x, float inverse = 1.0f) {
  return encode_table(table)[static_cast<std::size_t>(encode_index(x, inverse))];
}

TEST(CodeTables, AscendAndAreSymmetricWhereSigned) {
  for (std::size_t code = 0; code + 1 < 256; ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    const auto next = static_cast<std::uint8_t>(code + 1);
    EXPECT_LT(code_value(kSignedCodeBits, c), code_value(kSignedCodeBits, next));
    EXPECT_LT(code_value(kUnsignedCodeBits, c), code_value(kUnsignedCodeBits, next));
  }
  for (int i = 0; i <= 127; ++i) {
    EXPECT_EQ(code_value(kSignedCodeBits, static_cast<std::uint8_t>(127 + i)),
              -code_value(kSignedCodeBits, static_cast<std::uint8_t>(127 - i)));
  }
}

TEST(Quantizer, NeverGivesSevenSignedCodesAndTenUnsignedOnes) {
  const auto& signed_table = encode_table(CodeTable::signed_codes);
  const std::set<int> signed_codes(signed_table.begin(), signed_table.end());
  EXPECT_EQ(signed_codes.size(), 249u);
  for (int code = 124; code <= 130; ++code) EXPECT_EQ(signed_codes.count(code), 0u) << code;

  const auto& unsigned_table = encode_table(CodeTable::unsigned_codes);
  const std::set<int> unsigned_codes(unsigned_table.begin(), unsigned_table.end());
  // Code 0 stands at index 0, which only NaN and what is far below zero reach.
  int missing_low_codes = 0;
  for (int code = 0; code < 24; ++code)
    missing_low_codes += unsigned_codes.count(code) == 0 ? 1 : 0;
  EXPECT_EQ(missing_low_codes, 10);
}

TEST(Quantizer, DecodesZeroInANonzeroBlockToASmallNumberAndMinusAbsmaxToLess) {
  const float zero = code_value(kSignedCodeBits, encode(CodeTable::signed_codes, 0.0f));
  EXPECT_NEAR(zero, 2.1e-5f, 1e-6f);
  EXPECT_EQ(encode(CodeTable::signed_codes, 0.0f), 131);
  EXPECT_NEAR(code_value(kUnsignedCodeBits, encode(CodeTable::unsigned_codes, 0.0f)), 1.56e-5f,
              1e-7f);
  EXPECT_NEAR(code_value(kSignedCodeBits, encode(CodeTable::signed_codes, -1.0f)), -0.993f, 1e-4f);
  EXPECT_EQ(code_value(kSignedCodeBits, encode(CodeTable::signed_codes, 1.0f)), 1.0f);
}

TEST(Quantizer, GivesCode0ForNanAndSaturatesBeyondOne) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const CodeTable table : kTables) {
    EXPECT_EQ(encode(table, nan), 0);
    EXPECT_EQ(encode(table, -nan), 0);
    EXPECT_EQ(encode(table, kInf, 0.0f), 0);  // infinite absmax
    EXPECT_EQ(encode(table, 0.0f, kInf), 0);  // absmax below 2^-128
    EXPECT_EQ(encode(table, 1e-40f, kInf), 255);
    EXPECT_EQ(encode(table, -1e-40f, kInf), 0);
    EXPECT_EQ(encode(table, 1.0000002f), 255);
    EXPECT_EQ(encode(table, -1.0000002f), 0);
  }
}

TEST(Quantizer, SkipsNanInAbsmax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(larger_magnitude(0.5f, nan), 0.5f);
  EXPECT_EQ(larger_magnitude(0.5f, -2.0f), 2.0f);
  EXPECT_EQ(larger_magnitude(0.0f, -nan), 0.0f);
}

std::uint8_t encode_by_pieces(CodeTable table, float x) {
  const bool is_signed = table == CodeTable::signed_codes;
  const EncodePieces& pieces = is_signed ? kSignedPieces : kUnsignedPieces;
  const auto entry = static_cast<int>(std::fma(x + 1.0f, 32767.5f, 0.5f));
  const bool positive = entry > 32767;
  const int j = positive ? entry - 32768 : 32767 - entry;
  const auto piece = static_cast<std::size_t>(
      std::ranges::count_if(pieces.last_index, [j](std::int16_t last) { return j > last; }));
  const auto on_line = static_cast<int>(std::fma(
      pieces.slope[piece], static_cast<float>(is_signed ? j : 32768 + j), pieces.offset[piece]));
  const int code = std::min<int>(on_line, pieces.last_code[piece]) + (j > pieces.last_before_top);
  if (!is_signed) return static_cast<std::uint8_t>(code);
  return static_cast<std::uint8_t>(positive ? 127 + code : std::max(127 - code, 0));
}

TEST(EncodePieces, EqualTheTableOnTheWholeGrid) {
  for (const CodeTable table : kTables) {
    // Unsigned codes are of squares, which are not negative.
    for (std::int32_t k = table == CodeTable::signed_codes ? -(1 << 24) : 0; k <= 1 << 24; ++k) {
      const float x = static_cast<float>(k) * 0x1p-24f;
      ASSERT_EQ(encode_by_pieces(table, x), encode(table, x)) << x;
    }
    // The reciprocal of the absmax is rounded, so it may scale the largest to a little more.
    EXPECT_EQ(encode_by_pieces(table, 1.0000002f), encode(table, 1.0000002f));
  }
  EXPECT_EQ(encode_by_pieces(CodeTable::signed_codes, -1.0000002f),
            encode(CodeTable::signed_codes, -1.0000002f));
}

}  // namespace
}  // namespace stepscope::kernels
