#include "core/parse.h"

#include <charconv>
#include <cmath>

#include "core/error.h"

namespace stepscope {

std::int64_t parse_int(const std::string& name, std::string_view text, std::int64_t low,
                       std::int64_t high) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || stop != end || value < low || value > high) {
    throw Error(name + " is \"" + std::string(text) + "\"",
                "give a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

double parse_double(const std::string& name, std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || stop != end || !std::isfinite(value)) {
    throw Error(name + " is \"" + std::string(text) + "\"", "give a finite number such as 0.001");
  }
  return value;
}

}  // namespace stepscope
