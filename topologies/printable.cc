#include "topologies/printable.h"

namespace stepscope::topologies {
namespace {

unsigned char byte(char c) { return static_cast<unsigned char>(c); }

// The number of bytes of the control character that starts at `at`, or 0. In UTF-8 the C1 controls
// are 0xC2 followed by 0x80 to 0x9F.
std::size_t control_bytes(std::string_view text, std::size_t at) {
  const unsigned char first = byte(text[at]);
  if (first < 0x20 || first == 0x7f) return 1;
  if (first == 0xc2 && at + 1 < text.size()) {
    const unsigned char second = byte(text[at + 1]);
    if (second >= 0x80 && second <= 0x9f) return 2;
  }
  return 0;
}

}  // namespace

bool has_control_character(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (control_bytes(text, i) != 0) return true;
  }
  return false;
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::size_t end = text.size();
  if (end > max_bytes) {
    end = max_bytes;
    while (end > 0 && (byte(text[end]) & 0xc0) == 0x80) --end;  // not within a UTF-8 character
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (std::size_t i = 0; i < end;) {
    const std::size_t control = control_bytes(text, i);
    if (control == 0) {
      out += text[i++];
      continue;
    }
    for (std::size_t k = 0; k < control; ++k, ++i) {
      out += "\\x";
      out += kHex[byte(text[i]) >> 4];
      out += kHex[byte(text[i]) & 0xf];
    }
  }
  return out + (end < text.size() ? "\"..." : "\"");
}

}  // namespace stepscope::topologies
