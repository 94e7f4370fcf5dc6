#pragma once

/// Purpose: writing and strictly reading CSV as RFC 4180 describes it.
///
/// Usage:
///     out += csv_record({"BM<int, \"x\">", csv_integer(10), ""});
///     const CsvTable table = read_csv(folder / "results.csv");
///     for (const CsvRow& row : table.rows) use(table.integer(row, table.column("steps")));
///
/// Caveats: lines end in LF, not CRLF, so that awk, cut and diff see no stray carriage return; both
/// are read. A missing value is an empty field; an empty text cannot be told from it. Nothing here
/// looks at the locale.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "results/csv_stream.h"

namespace stepscope::results {

/// `value` in decimal digits, exact.
std::string csv_integer(std::int64_t value);

/// The shortest text that reads back as exactly `value`, with a point. Throws Error for NaN and
/// infinities: a value that does not exist is an empty field.
std::string csv_number(double value);

/// One record with its line end. Fields that hold a comma, a quote, CR or LF are quoted. Throws
/// Error when a field holds a NUL byte, which no reader agrees on.
std::string csv_record(std::span<const std::string> fields);

/// One record of a file.
struct CsvRow {
  std::int64_t line = 0;  ///< line on which it starts, counted from 1
  std::vector<std::string> fields;
};

/// A file whose records all have as many fields as its header.
struct CsvTable {
  std::filesystem::path path;
  std::vector<std::string> header;
  std::vector<CsvRow> rows;

  /// The position of a column, or nothing.
  std::optional<std::size_t> find(std::string_view column) const;

  /// The position of a column that must be there. Throws Error with the file otherwise.
  std::size_t column(std::string_view name) const;

  /// A field as an integer, or nothing when it is empty. Throws Error with file, line and column
  /// for anything but an optional minus sign and digits (so for "19,260" and "1.5").
  std::optional<std::int64_t> integer(const CsvRow& row, std::size_t column) const;

  /// A field as a finite number, or nothing when it is empty. Throws Error with file, line and
  /// column for anything else (so for "19,260.6", "1,5" and "nan").
  std::optional<double> number(const CsvRow& row, std::size_t column) const;
};

/// Reads a whole file. Throws Error with file and line when it cannot be read, has no header, names
/// a column twice, holds a record with more or fewer fields than the header, an unterminated or
/// misplaced quote, a bare CR or a NUL byte, or when its last line has no line end: such a file was
/// cut off, and its last value may be short of digits. A UTF-8 byte order mark is skipped.
CsvTable read_csv(const std::filesystem::path& path);

/// Throws Error with the stream's file when a column is named twice.
void require_distinct_columns(const CsvStream& stream, std::span<const std::string> header);

/// Throws Error with file and line unless the stream's record has as many fields as the header.
void require_fields(const CsvStream& stream, std::size_t columns);

}  // namespace stepscope::results
