#pragma once

/// Purpose: reading a JSON file that anything may have written.
///
/// Usage:
///     const nlohmann::json json = read_json_file("step.json");
///     const std::vector<std::int64_t> lines = lines_of_entries("step.json", "benchmarks");
///
/// Caveats: what lies deeper than any file that is compared is refused: walking it would need a
/// stack of its depth.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace stepscope::results {

/// UTF-8, with or without byte order mark. Throws Error with file and line where it cannot be read,
/// is not whole JSON, or holds arrays and objects more than 64 deep.
nlohmann::json read_json_file(const std::filesystem::path& path);

/// The lines, counted from 1, on which the entries of the list `key` of the outermost object start,
/// for messages about one of them. The file must be one that read_json_file takes; empty where it
/// has no such list.
std::vector<std::int64_t> lines_of_entries(const std::filesystem::path& path, std::string_view key);

}  // namespace stepscope::results
