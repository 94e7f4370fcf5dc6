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

std::string text_of(const std::filesystem::path& path) {
  InputFile file(path.string());
  return file.read(file.size());
}

/// Walks over the text of whole JSON: notes where the entries of one list start.
class EntryLines {
 public:
  EntryLines(std::string_view text, std::string_view key) : text_(text), key_(key) {}

  std::vector<std::int64_t> find() {
    while (at_ < text_.size()) step();
    return lines_;
  }

 private:
  void step() {
    const char c = text_[at_];
    const std::size_t begin = at_++;
    if (c == '\n') ++line_;
    if (std::string_view(" \t\r\n,:").find(c) != std::string_view::npos || c == '\xef' ||
        c == '\xbb' || c == '\xbf') {
      if (c == ',') value_expected_ = true;
      return;
    }
    if (c == ']' || c == '}') {
      if (--depth_ == 1) in_list_ = false;
      return;
    }
    // The start of a value or key.
    if (in_list_ && depth_ == 2 && value_expected_) lines_.push_back(line_);
    value_expected_ = false;
    if (c == '"') return skip_text(begin);
    if (c != '[' && c != '{') return;
    if (++depth_ == 2) {
      in_list_ = c == '[' && last_text_ == key_;
      if (in_list_) lines_.clear();  // of keys that come twice the last one counts
      value_expected_ = in_list_;
    }
  }

  void skip_text(std::size_t begin) {
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
    if (depth_ == 1) last_text_ = text_.substr(begin + 1, at_ - begin - 2);
  }

  std::string_view text_;
  std::string_view key_;
  std::string_view last_text_;  ///< in the outermost object: the key, once its value begins
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
  int depth_ = 0;
  bool in_list_ = false;
  bool value_expected_ = false;
  std::vector<std::int64_t> lines_;
};

}  // namespace

std::vector<std::int64_t> lines_of_entries(const std::filesystem::path& path,
                                           std::string_view key) {
  const std::string text = text_of(path);
  return EntryLines(text, key).find();
}

nlohmann::json read_json_file(const std::filesystem::path& path) {
  const std::string text = text_of(path);
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
