#pragma once

/// Purpose: reading a JSON file that anything may have written.
///
/// Usage:  const nlohmann::json json = read_json_file("step.json");
///
/// Caveats: what lies deeper than any file that is compared is refused: walking it would need a
/// stack of its depth.

#include <filesystem>
#include <nlohmann/json.hpp>

namespace stepscope::results {

/// UTF-8, with or without byte order mark. Throws Error with file and line where it cannot be read,
/// is not whole JSON, or holds arrays and objects more than 64 deep.
nlohmann::json read_json_file(const std::filesystem::path& path);

}  // namespace stepscope::results
