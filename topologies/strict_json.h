#pragma once

/// Purpose: JSON from files that may be damaged or hostile: one error line with file and line
/// instead of a crash, an endless recursion or a silently dropped duplicate key.
///
/// Usage:  const nlohmann::json json = parse_strict_json(text, path, {.max_depth = 4});

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"

namespace stepscope::topologies {

struct JsonLimits {
  std::size_t max_depth = 8;           ///< arrays and objects inside one another
  std::size_t max_values = 5'000'000;  ///< values and keys together; 16 bytes of memory each
};

/// The JSON value that is the whole of `text`. Throws Error with `file` and the line where the text
/// is not JSON (NUL bytes and invalid UTF-8 included), repeats a key of an object, or exceeds a
/// limit.
nlohmann::json parse_strict_json(std::string_view text, const std::string& file,
                                 const JsonLimits& limits);

/// The integer in `value`. Throws Error naming `what` and `where` where it is not an integer in
/// [0, 2^63).
std::int64_t non_negative_integer(const nlohmann::json& value, const std::string& what,
                                  const Where& where);

}  // namespace stepscope::topologies
