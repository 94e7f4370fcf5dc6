#include "tracer/decimal.h"

#include <charconv>
#include <limits>

namespace stepscope::tracer {

std::optional<std::int64_t> scaled_decimal(std::string_view text, int shift) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  std::int64_t exponent = shift;
  const auto e = text.find_first_of("eE");
  if (e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    std::int64_t given = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), given);
    constexpr std::int64_t kLargest = 100'000;
    if (error != std::errc() || end != digits.data() + digits.size() || given > kLargest ||
        given < -kLargest) {
      return {};
    }
    exponent += given;
    text = text.substr(0, e);
  }
  const auto point = text.find('.');
  if (point != std::string_view::npos)
    exponent -= static_cast<std::int64_t>(text.size() - point - 1);

  // The digits that stand before the scaled point are the value, the one after it rounds.
  std::int64_t kept =
      static_cast<std::int64_t>(text.size()) - (point != std::string_view::npos) + exponent;
  std::uint64_t value = 0;
  bool round_up = false;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const char digit : text) {
    if (digit == '.') continue;
    if (digit < '0' || digit > '9') return {};
    if (kept-- > 0) {
      value = value * 10 + static_cast<std::uint64_t>(digit - '0');
      if (value > kMost / 10 && kept > 0) return {};
    } else {
      round_up = kept == -1 && digit >= '5';
      break;
    }
  }
  for (; kept > 0 && value > 0; --kept) {
    if (value > kMost / 10) return {};
    value *= 10;
  }
  value += round_up ? 1 : 0;
  if (value > kMost) return {};
  const auto number = static_cast<std::int64_t>(value);
  return negative ? -number : number;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const char* last = text.data() + text.size();
  if (const auto [end, error] = std::from_chars(text.data(), last, value);
      error == std::errc() && end == last) {
    return value;
  }
  std::uint64_t large = 0;
  if (const auto [end, error] = std::from_chars(text.data(), last, large);
      error == std::errc() && end == last) {
    return static_cast<std::int64_t>(large);
  }
  return {};
}

}  // namespace stepscope::tracer
