#pragma once

/// Purpose: foreign text (names and tokens from input files) made fit to stand in an error message.
///
/// Usage:  throw Error("the name " + printable(name) + " occurs twice", ...);

#include <cstddef>
#include <string>
#include <string_view>

namespace stepscope {

/// Whether `text` is valid UTF-8 without control characters: ASCII's, DEL, and the C1 controls
/// (U+0080 to U+009F), on which terminals and CSV readers may act.
bool is_printable(std::string_view text);

/// `text` in double quotes, every byte that is not printable as \xNN, cut after `max_bytes` at a
/// character border; "..." shows the cut.
std::string printable(std::string_view text, std::size_t max_bytes = 100);

}  // namespace stepscope
