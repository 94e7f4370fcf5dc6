#include "core/printable.h"

namespace stepscope {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
}

// The bytes of the printable character that starts at `at`, or 0. The ranges of the second byte are
// those of table 3-7 of the Unicode standard (well-formed UTF-8), less the C1 controls.
std::size_t character_bytes(std::string_view text, std::size_t at) {
  const auto continues = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      if ((byte_at(text, at + i) & 0xc0U) != 0x80U) return false;
    }
    return true;
  };
  const unsigned first = byte_at(text, at);
  const unsigned second = byte_at(text, at + 1);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  if (first >= 0xc2 && first <= 0xdf) {
    return continues(1, 2) && (first != 0xc2 || second >= 0xa0) ? 2 : 0;
  }
  if (first >= 0xe0 && first <= 0xef) {
    const bool is_valid = (first != 0xe0 || second >= 0xa0) && (first != 0xed || second <= 0x9f);
    return is_valid && continues(1, 3) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool is_valid = (first != 0xf0 || second >= 0x90) && (first != 0xf4 || second <= 0x8f);
    return is_valid && continues(1, 4) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_printable(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text, at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = character_bytes(text, at);
    const std::size_t next = at + (bytes == 0 ? 1 : bytes);
    if (next > max_bytes) break;
    if (bytes == 0) {
      out += "\\x";
      out += kHex[byte_at(text, at) >> 4U];
      out += kHex[byte_at(text, at) & 0xfU];
    } else {
      out += text.substr(at, bytes);
    }
    at = next;
  }
  return out + (at < text.size() ? "\"..." : "\"");
}

}  // namespace stepscope
