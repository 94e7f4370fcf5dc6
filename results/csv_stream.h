#pragma once

/// Purpose: reading a CSV file of any size record by record, as strictly as read_csv does.
///
/// Usage:
///     CsvStream stream("samples.csv");
///     stream.next();                                     // the header
///     while (stream.next()) use(stream.fields(), stream.line());
///
/// Caveats: fields are views that the next call of `next` invalidates. Records may have any number
/// of fields: what a header asks for is checked by the caller.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope::results {

class CsvStream {
 public:
  /// Opens the file and skips a UTF-8 byte order mark and `preamble` lines, whatever they hold.
  /// Throws Error when it cannot be read.
  explicit CsvStream(std::filesystem::path path, std::int64_t preamble = 0);
  ~CsvStream();
  CsvStream(const CsvStream&) = delete;
  CsvStream& operator=(const CsvStream&) = delete;

  /// Goes to the next record; false when there is none. Throws Error with file and line for an
  /// unterminated or misplaced quote, a bare CR, a NUL byte, and a last line without line end.
  bool next();

  /// The record's fields, unquoted.
  std::span<const std::string_view> fields() const noexcept { return fields_; }

  /// The line on which the record starts, counted from 1.
  std::int64_t line() const noexcept { return record_line_; }

  const std::filesystem::path& path() const noexcept { return path_; }

  /// Throws Error with this file and `line`.
  [[noreturn]] void fail(std::int64_t line, std::string what, std::string advice) const;

 private:
  enum class Parsed : std::uint8_t { record, need_more };

  bool refill();
  void skip_line();
  void split(std::string_view line);
  Parsed parse_record();

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  ///< of what is not consumed yet
  std::size_t end_ = 0;
  bool plain_ = true;  ///< nothing between begin_ and end_ is a quote, a CR or a NUL
  bool at_end_of_file_ = false;
  std::int64_t line_ = 1;  ///< at begin_
  std::int64_t record_line_ = 0;
  std::vector<std::string_view> fields_;
  std::vector<std::string> unquoted_;  ///< what fields_ views where the record is not plain
};

}  // namespace stepscope::results
