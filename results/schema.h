#pragma once

/// Purpose: the tables of a run folder and their columns, read from the one definition,
/// results/schema.json.
///
/// Usage:  for (const Column& column : results_table().columns) ...
///
/// Caveats: columns may be added without a new schema_version; readers ignore columns they do not
/// know. A column's meaning, type or unit never changes within a version.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope::results {

enum class ColumnType : std::uint8_t {
  string,   ///< UTF-8 text
  integer,  ///< signed 64-bit
  number,   ///< finite double
};

struct Column {
  std::string name;
  ColumnType type = ColumnType::string;
  std::string unit;  ///< "ns", "bytes", ...; empty where there is none
  std::string description;
  std::vector<std::string> values;  ///< all that it may be, besides empty; empty: anything
};

struct Table {
  std::string name;  ///< "results" or "samples"
  std::string file;  ///< its file in a run folder, such as "results.csv"
  std::string description;
  std::vector<Column> columns;  ///< in the order in which they are written

  /// The position of a column, or nothing.
  std::optional<std::size_t> find(std::string_view column) const;
};

/// The version that every file of a run folder carries.
std::int64_t schema_version();

/// One row per benchmark and rank. Valid for the life of the program, as are its columns.
const Table& results_table();

/// One row per benchmark and timed step.
const Table& samples_table();

}  // namespace stepscope::results
