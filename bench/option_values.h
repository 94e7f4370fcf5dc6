#pragma once

/// Purpose: the values of options that several programs read from their command lines.
///
/// Usage:  options.steps = whole_number("--steps", text, /*otherwise=*/100, 1, kMost);
///
/// Caveats: numbers are read as text because CLI11 takes 010 for 8 and clamps what does not fit.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace stepscope::bench {

/// `parse` of every name. Throws Error where two give the same value.
template <typename T, typename Parse>
std::vector<T> parse_list(const std::vector<std::string>& names, Parse parse) {
  std::vector<T> values;
  for (const std::string& name : names) {
    const T value = parse(name);
    if (std::find(values.begin(), values.end(), value) != values.end()) {
      throw Error("\"" + name + "\" is given twice", "give every value once");
    }
    values.push_back(value);
  }
  return values;
}

/// The whole number in `text`, or `otherwise` where it was not given (is empty).
std::int64_t whole_number(const std::string& name, const std::string& text, std::int64_t otherwise,
                          std::int64_t low, std::int64_t high);

/// A learning rate or weight decay, nothing where it was not given; the kernels compute with it in
/// float32.
std::optional<double> rate(const std::string& name, const std::string& text);

/// Seconds, at most a day, so that sums cannot overflow.
std::chrono::milliseconds seconds(const std::string& name, const std::string& text);

}  // namespace stepscope::bench
