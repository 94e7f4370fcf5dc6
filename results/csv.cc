#include "results/csv.h"

#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/parse.h"

namespace stepscope::results {
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
  CsvStream stream(path);
  CsvTable table{.path = path, .header = {}, .rows = {}};
  if (!stream.next()) stream.fail(1, "the file is empty", "a header line is needed");
  table.header.assign(stream.fields().begin(), stream.fields().end());
  require_distinct_columns(stream, table.header);
  while (stream.next()) {
    require_fields(stream, table.header.size());
    table.rows.push_back(
        {.line = stream.line(), .fields = {stream.fields().begin(), stream.fields().end()}});
  }
  return table;
}

void require_distinct_columns(const CsvStream& stream, std::span<const std::string> header) {
  std::set<std::string_view> seen;
  for (const std::string& name : header) {
    if (!seen.insert(name).second) {
      stream.fail(stream.line(), "the header names column \"" + name + "\" twice",
                  "rename one of them");
    }
  }
}

void require_fields(const CsvStream& stream, std::size_t columns) {
  const std::size_t fields = stream.fields().size();
  if (fields == columns) return;
  stream.fail(stream.line(),
              "the row has " + std::to_string(fields) + (fields == 1 ? " field" : " fields") +
                  ", the header " + std::to_string(columns),
              "write the file again, or quote fields that hold commas");
}

}  // namespace stepscope::results
