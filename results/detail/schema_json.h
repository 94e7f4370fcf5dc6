#pragma once

/// Purpose: the text of results/schema.json, embedded by CMake so that a program needs no file.
///
/// Usage: only results/schema.cc reads it.

namespace stepscope::results::detail {

extern const char* const kSchemaJson;

}  // namespace stepscope::results::detail
