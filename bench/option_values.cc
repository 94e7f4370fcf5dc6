#include "bench/option_values.h"

#include <cmath>

#include "core/parse.h"

namespace stepscope::bench {

std::int64_t whole_number(const std::string& name, const std::string& text, std::int64_t otherwise,
                          std::int64_t low, std::int64_t high) {
  return text.empty() ? otherwise : parse_int(name, text, low, high);
}

std::optional<double> rate(const std::string& name, const std::string& text) {
  if (text.empty()) return std::nullopt;
  const double value = parse_double(name, text);
  if (value < 0 || value > 1e6) {
    throw Error(name + " is \"" + text + "\"", "give a number from 0 to 1000000");
  }
  return value;
}

std::chrono::milliseconds seconds(const std::string& name, const std::string& text) {
  const double value = parse_double(name, text);
  if (!(value >= 0.001 && value <= 86400)) {
    throw Error(name + " is \"" + text + "\"", "give seconds from 0.001 to 86400");
  }
  return std::chrono::milliseconds(std::llround(value * 1000));
}

}  // namespace stepscope::bench
