#pragma once

/// Purpose: reading an SQLite file that may be damaged or hostile, with errors that name the place.
///
/// Usage:
///     SqliteFile file(path);
///     const SqliteTable* table = file.find_table("NVTX_EVENTS");
///     SqliteRows rows(file, *table, {"start", "end"});
///     while (rows.next()) use(rows.integer(0), rows.optional_integer(1));
///
/// Caveats: opened read-only and as immutable, so that nothing is written beside the file; a
/// journal that lies beside it is not looked at. Views, triggers and virtual tables are not
/// followed. Every number stays a 64-bit integer: a value of another type in an integer column is
/// an Error.

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope::tracer {

/// A real table of the file.
struct SqliteTable {
  std::string name;
  std::vector<std::string> columns;
  bool has(std::string_view column) const;
};

class SqliteFile {
 public:
  /// Throws Error naming the file where it is no regular file, no SQLite database, or its schema
  /// cannot be read.
  explicit SqliteFile(const std::filesystem::path& path);

  const std::vector<SqliteTable>& tables() const noexcept { return tables_; }

  /// The table of that name, or of that name with a suffix "_V<number>" (the highest number), or
  /// null. Names are compared without regard to case, as SQLite does.
  const SqliteTable* find_table(std::string_view name) const;

  const std::string& path() const noexcept { return path_; }

  /// No table can hold more rows than this: each takes at least four bytes of the file.
  std::int64_t max_rows() const noexcept { return max_rows_; }

  /// The highest rowid of a table, at most max_rows(): how many rows to make room for.
  std::int64_t row_estimate(const SqliteTable& table);

 private:
  friend class SqliteRows;
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  [[noreturn]] void fail(const std::string& place) const;

  std::string path_;
  std::int64_t max_rows_ = 0;
  std::unique_ptr<std::int64_t> budget_;  ///< steps that SQLite may still take, in thousands
  std::unique_ptr<sqlite3, Close> connection_;
  std::vector<SqliteTable> tables_;
};

/// The rows of one table, in the order of the file. `columns` are read by their position in the
/// list; a column that the table does not have reads as NULL.
class SqliteRows {
 public:
  /// `clause`: what stands behind the table's name, such as "WHERE tableId=3 ORDER BY row"; a
  /// constant of the program, never of the file.
  SqliteRows(const SqliteFile& file, const SqliteTable& table,
             std::initializer_list<std::string_view> columns, const std::string& clause = {});

  /// Whether there is one more row. Throws Error with table and row where the file is damaged.
  bool next();

  /// Number of the current row, counted from 1.
  std::int64_t row() const noexcept { return row_; }

  /// Whether the table has the column.
  bool has(int column) const { return present_[static_cast<std::size_t>(column)] != 0; }

  bool is_null(int column) const { return type(column) == SQLITE_NULL; }

  /// Throws Error with table, row and column where the value is NULL or no integer.
  std::int64_t integer(int column) const {
    sqlite3_value* const value = value_of(column);
    if (sqlite3_value_type(value) != SQLITE_INTEGER) fail_no_integer(column);
    return sqlite3_value_int64(value);
  }
  std::int64_t integer_or(int column, std::int64_t missing) const {
    if (!present_[static_cast<std::size_t>(column)]) return missing;
    sqlite3_value* const value = value_of(column);
    const int kind = sqlite3_value_type(value);
    if (kind == SQLITE_NULL) return missing;
    if (kind != SQLITE_INTEGER) fail_no_integer(column);
    return sqlite3_value_int64(value);
  }
  std::optional<std::int64_t> optional_integer(int column) const;

  /// Whether the value is a text.
  bool is_text(int column) const { return type(column) == SQLITE_TEXT; }
  /// The text, empty for NULL; valid until next(). Throws Error for other types.
  std::string_view text(int column) const;

  /// Throws Error that names the file, the table and this row.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  /// One call into SQLite a value, since its own functions for a column cost as much as the value.
  sqlite3_value* value_of(int column) const {
    return sqlite3_column_value(statement_.get(), column);
  }
  int type(int column) const {
    if (!present_[static_cast<std::size_t>(column)]) return SQLITE_NULL;
    return sqlite3_value_type(value_of(column));
  }
  [[noreturn]] void fail_no_integer(int column) const;
  std::string column_name(int column) const;

  const SqliteFile* file_;
  const SqliteTable* table_;
  std::vector<std::string> columns_;
  std::vector<char> present_;  ///< no vector<bool>: asked for every value
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::int64_t row_ = 0;
};

}  // namespace stepscope::tracer
