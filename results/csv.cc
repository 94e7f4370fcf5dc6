#include "results/csv.h"

#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/parse.h"

namespace stepscope::results {
namespace {

/// Splits one file's text into records.
class Parser {
 public:
  Parser(std::string_view text, const std::filesystem::path& path) : text_(text), path_(path) {}

  bool at_end() const { return next_ == text_.size(); }

  CsvRow record() {
    CsvRow row{.line = line_, .fields = {}};
    while (true) {
      row.fields.push_back(peek() == '"' ? quoted_field(row.line) : plain_field());
      if (at_end()) {
        fail(line_, "the last line has no line end, so the file was cut off",
             "write the file again, or, if it is whole, end it with a line break");
      }
      const char separator = text_[next_++];
      if (separator == ',') continue;
      if (separator == '\r') {
        if (peek() != '\n') fail(line_, "a carriage return stands alone", "quote the field");
        ++next_;
      }
      ++line_;
      return row;
    }
  }

  [[noreturn]] void fail(std::int64_t line, std::string what, std::string advice) const {
    throw Error(std::move(what), std::move(advice), {.file = path_.string(), .line = line});
  }

 private:
  /// The next byte, or -1 at the end.
  int peek() const { return at_end() ? -1 : static_cast<unsigned char>(text_[next_]); }

  std::string plain_field() {
    const std::size_t start = next_;
    while (!at_end()) {
      const char c = text_[next_];
      if (c == ',' || c == '\r' || c == '\n') break;
      if (c == '"') fail(line_, "a quote stands inside an unquoted field", "quote the whole field");
      check_not_nul(c);
      ++next_;
    }
    return std::string(text_.substr(start, next_ - start));
  }

  std::string quoted_field(std::int64_t record_line) {
    std::string field;
    for (++next_; !at_end(); ++next_) {
      const char c = text_[next_];
      check_not_nul(c);
      if (c == '"') {
        ++next_;
        if (peek() != '"') {
          const int after = peek();
          if (after != -1 && after != ',' && after != '\r' && after != '\n') {
            fail(line_, "text follows a closing quote", "double the quotes inside the field");
          }
          return field;
        }
      }
      if (c == '\n') ++line_;
      field += c;
    }
    fail(record_line, "a quote opened in this record is never closed",
         "the file was cut off or a quote is not doubled");
  }

  void check_not_nul(char c) const {
    if (c == '\0') fail(line_, "the line holds a NUL byte", "this is not a CSV file");
  }

  std::string_view text_;
  const std::filesystem::path& path_;
  std::size_t next_ = 0;
  std::int64_t line_ = 1;
};

std::string read_file(const std::filesystem::path& path) {
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) {
    throw Error("is a directory", "give the path of a CSV file", {.file = path.string()});
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in.is_open() || in.bad()) {
    throw Error("cannot be read", "check the path and its permissions", {.file = path.string()});
  }
  return text;
}

}  // namespace

std::string csv_integer(std::int64_t value) { return std::to_string(value); }

std::string csv_number(double value) {
  if (!std::isfinite(value)) {
    throw Error("a figure to be written to a CSV file is not finite",
                "leave the field empty when there is no value");
  }
  std::array<char, 32> text = {};  // the longest shortest form, -2.2250738585072014e-308, has 24
  const auto [end, status] = std::to_chars(text.begin(), text.end(), value);
  return std::string(text.begin(), end);
}

std::string csv_record(std::span<const std::string> fields) {
  std::string record;
  for (const std::string& field : fields) {
    if (&field != &fields.front()) record += ',';
    if (field.find('\0') != std::string::npos) {
      throw Error("a text to be written to a CSV file holds a NUL byte");
    }
    // One empty field alone would be a blank line, which readers skip.
    const bool quote = field.find_first_of(",\"\r\n") != std::string::npos ||
                       (fields.size() == 1 && field.empty());
    if (!quote) {
      record += field;
      continue;
    }
    record += '"';
    for (const char c : field) {
      if (c == '"') record += '"';
      record += c;
    }
    record += '"';
  }
  record += '\n';
  return record;
}

std::optional<std::size_t> CsvTable::find(std::string_view name) const {
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (header[i] == name) return i;
  }
  return std::nullopt;
}

std::size_t CsvTable::column(std::string_view name) const {
  if (const std::optional<std::size_t> position = find(name)) return *position;
  throw Error("there is no column " + std::string(name), "check that the file is of the right kind",
              {.file = path.string(), .line = 1});
}

std::optional<std::int64_t> CsvTable::integer(const CsvRow& row, std::size_t column) const {
  const std::string& field = row.fields.at(column);
  if (field.empty()) return std::nullopt;
  try {
    return parse_int("column " + header.at(column), field, INT64_MIN, INT64_MAX);
  } catch (const Error& error) {
    throw Error(error.what_failed(), error.advice(), {.file = path.string(), .line = row.line});
  }
}

std::optional<double> CsvTable::number(const CsvRow& row, std::size_t column) const {
  const std::string& field = row.fields.at(column);
  if (field.empty()) return std::nullopt;
  try {
    return parse_double("column " + header.at(column), field);
  } catch (const Error& error) {
    throw Error(error.what_failed(), error.advice(), {.file = path.string(), .line = row.line});
  }
}

CsvTable read_csv(const std::filesystem::path& path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  const std::string file = read_file(path);
  std::string_view text = file;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());

  Parser parser(text, path);
  CsvTable table{.path = path, .header = {}, .rows = {}};
  if (parser.at_end()) parser.fail(1, "the file is empty", "a header line is needed");
  table.header = parser.record().fields;
  std::set<std::string_view> seen;
  for (const std::string& name : table.header) {
    if (!seen.insert(name).second) {
      parser.fail(1, "the header names column \"" + name + "\" twice", "rename one of them");
    }
  }
  while (!parser.at_end()) {
    CsvRow row = parser.record();
    if (row.fields.size() != table.header.size()) {
      parser.fail(row.line,
                  "the row has " + std::to_string(row.fields.size()) +
                      (row.fields.size() == 1 ? " field" : " fields") + ", the header " +
                      std::to_string(table.header.size()),
                  "write the file again, or quote fields that hold commas");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace stepscope::results
