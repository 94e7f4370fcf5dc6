#include "kernels/byte_tables.h"

#include "kernels/code_tables.h"

namespace stepscope::kernels {
namespace {

constexpr int kFolded = 32768;

std::uint8_t code_of(CodeTable table, int j) {
  return encode_table(table)[static_cast<std::size_t>(kFolded + j)];
}

template <int kBins>
EncodeLevel<kBins> level(CodeTable table, int width) {
  EncodeLevel<kBins> result{};
  for (int bin = 0; bin < kBins; ++bin) {
    const int first = bin * width;
    const std::uint8_t code = code_of(table, first);
    int last = first;
    while (last + 1 < first + width && code_of(table, last + 1) == code) ++last;
    // A step at the end of a bin belongs to the next one; the low byte 255 can be no other.
    const bool has_step = last + 1 < first + width;
    result.code[static_cast<std::size_t>(bin)] = code;
    result.last[static_cast<std::size_t>(bin)] =
        has_step ? static_cast<std::uint8_t>(last & 255) : std::uint8_t{255};
  }
  return result;
}

std::array<std::uint8_t, 64> exact(CodeTable table) {
  std::array<std::uint8_t, 64> result{};
  for (int j = 0; j < 64; ++j) result[static_cast<std::size_t>(j)] = code_of(table, j);
  return result;
}

std::uint8_t byte_of(std::uint32_t bits, std::size_t byte) {
  return static_cast<std::uint8_t>(bits >> (8 * byte));
}

SignedByteTables build_signed() {
  SignedByteTables tables{};
  for (std::size_t plane = 0; plane < 4; ++plane) {
    for (std::size_t k = 0; k < 128; ++k) {
      tables.decode[plane][k] = byte_of(kSignedCodeBits[127 + k], plane);
    }
  }
  tables.exact = exact(CodeTable::signed_codes);
  tables.fine = level<64>(CodeTable::signed_codes, 16);
  tables.middle = level<64>(CodeTable::signed_codes, 64);
  tables.coarse = level<128>(CodeTable::signed_codes, 256);
  return tables;
}

UnsignedByteTables build_unsigned() {
  UnsignedByteTables tables{};
  for (std::size_t plane = 0; plane < 4; ++plane) {
    for (std::size_t code = 0; code < 256; ++code) {
      tables.decode[plane][code] = byte_of(kUnsignedCodeBits[code], plane);
    }
  }
  tables.exact = exact(CodeTable::unsigned_codes);
  tables.fine = level<64>(CodeTable::unsigned_codes, 8);
  tables.middle = level<128>(CodeTable::unsigned_codes, 32);
  tables.coarse = level<256>(CodeTable::unsigned_codes, 128);
  return tables;
}

}  // namespace

const SignedByteTables& signed_byte_tables() {
  static const SignedByteTables kTables = build_signed();
  return kTables;
}

const UnsignedByteTables& unsigned_byte_tables() {
  static const UnsignedByteTables kTables = build_unsigned();
  return kTables;
}

}  // namespace stepscope::kernels
