#pragma once

/// Purpose: foreign text (names and tokens from input files) made fit to stand in an error message.
///
/// Usage:  throw Error("the name " + printable(name) + " occurs twice", ...);

#include <cstddef>
#include <string>
#include <string_view>

namespace stepscope::topologies {

/// Whether `text` holds an ASCII control character, DEL, or a C1 control (U+0080 to U+009F), which
/// terminals and CSV readers may act on.
bool has_control_character(std::string_view text);

/// `text` in double quotes, with control characters (those of has_control_character) as \xNN, cut
/// after `max_bytes` at a character border; "..." shows the cut.
std::string printable(std::string_view text, std::size_t max_bytes = 100);

}  // namespace stepscope::topologies
