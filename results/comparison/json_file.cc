#include "results/comparison/json_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/input_file.h"

namespace stepscope::results {
namespace {

constexpr int kMostDepth = 64;

/// Of the byte with that number, counted from 1.
std::int64_t line_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  return 1 + std::count(before.begin(), before.end(), '\n');
}

/// The library's message without its own numbering; it is made of foreign text in parts.
std::string reason(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.find("] ");
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

}  // namespace

nlohmann::json read_json_file(const std::filesystem::path& path) {
  InputFile file(path.string());
  const std::string text = file.read(file.size());
  const auto refusal = [&](std::int64_t line, const std::string& what, const char* advice) {
    return Error(what, advice, {.file = path.string(), .line = line});
  };
  constexpr const char* kAdvice = "the file was cut off or changed";
  if (text.empty()) throw refusal(1, "is empty", kAdvice);
  if (text.find('\0') != std::string::npos) {
    throw refusal(1, "holds NUL bytes, as UTF-16 does", "write it as UTF-8");
  }
  const auto limit = [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    if (depth > kMostDepth) throw refusal(0, "is nested more than 64 deep", "this is another file");
    return true;
  };
  try {
    return nlohmann::json::parse(text, limit);
  } catch (const nlohmann::json::parse_error& error) {
    throw refusal(line_of(text, error.byte), "is not whole JSON: " + reason(error), kAdvice);
  } catch (const nlohmann::json::exception& error) {
    throw refusal(0, "is not whole JSON: " + reason(error), kAdvice);
  }
}

}  // namespace stepscope::results
