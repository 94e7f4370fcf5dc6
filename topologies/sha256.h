#pragma once

/// Purpose: the digest that tells whether bytes in a file are those that were written.
///
/// Usage:  if (sha256(chunk) != expected) ...

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace stepscope::topologies {

/// SHA-256 as 64 lower-case hexadecimal digits.
std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

}  // namespace stepscope::topologies
