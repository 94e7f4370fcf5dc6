#pragma once

/// Purpose: decimal numbers of JSON as exact integers.
///
/// Usage:  scaled_decimal("4458676522690.655", 3) == 4'458'676'522'690'655: microseconds as ns
///
/// Caveats: no double in between, which has 53 bits and would move times since 1970 by 256 ns.

#include <cstdint>
#include <optional>
#include <string_view>

namespace stepscope::tracer {

/// `text` (a number of JSON) times 10^shift, rounded to the nearest, halves away from 0; nothing
/// where that does not fit into 64 bits.
std::optional<std::int64_t> scaled_decimal(std::string_view text, int shift);

/// `text` where it is an integer that fits into 64 bits, with or without sign; its two's complement
/// above 2^63.
std::optional<std::int64_t> whole_number(std::string_view text);

}  // namespace stepscope::tracer
