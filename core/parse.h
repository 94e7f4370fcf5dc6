#pragma once

/// Purpose: strict, locale-independent reading of numbers from text (flags, environment, files).
///
/// Usage:  std::int64_t port = parse_int("MASTER_PORT", text, 0, 65535);
///
/// Caveats: the whole text must be the number; blanks, signs where none can hold, and trailing
/// characters are errors.

#include <cstdint>
#include <string>
#include <string_view>

namespace stepscope {

/// The integer in `text`, which must lie in [low, high]. Throws Error naming `name`, the text and
/// the range otherwise.
std::int64_t parse_int(const std::string& name, std::string_view text, std::int64_t low,
                       std::int64_t high);

/// The finite decimal number in `text`. Throws Error naming `name` otherwise.
double parse_double(const std::string& name, std::string_view text);

}  // namespace stepscope
