#include "kernels/quantizer.h"

#include "kernels/code_tables.h"

namespace stepscope::kernels {
namespace {

std::array<std::uint8_t, kEncodeEntries> build(const std::array<std::uint32_t, 256>& bits) {
  std::array<std::uint8_t, kEncodeEntries> entries{};
  std::uint8_t code = 0;
  for (int i = 0; i < kEncodeEntries; ++i) {
    const float value = -1.0f + 2.0f * static_cast<float>(i) / 65535.0f;
    while (code < 255) {
      const float low = code_value(bits, code);
      const float high = code_value(bits, static_cast<std::uint8_t>(code + 1));
      if (!((low + high) * 0.5f < value)) break;
      ++code;
    }
    entries[static_cast<std::size_t>(i)] = code;
  }
  return entries;
}

}  // namespace

const std::array<std::uint8_t, kEncodeEntries>& encode_table(CodeTable table) {
  static const std::array<std::uint8_t, kEncodeEntries> kSigned = build(kSignedCodeBits);
  static const std::array<std::uint8_t, kEncodeEntries> kUnsigned = build(kUnsignedCodeBits);
  return table == CodeTable::signed_codes ? kSigned : kUnsigned;
}

}  // namespace stepscope::kernels
