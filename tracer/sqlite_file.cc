#include "tracer/sqlite_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"

namespace stepscope::tracer {
namespace {

constexpr const char* kAdvice = "export the trace again, or copy the file again";

/// The smallest row: a pointer of two bytes, and one byte each for size and rowid.
constexpr std::int64_t kLeastRowBytes = 4;

/// Limits on what a schema may ask for; nsys' own tables stay far below.
constexpr int kLongestValue = 64 * 1024 * 1024;
constexpr int kMostColumns = 200;
constexpr std::size_t kMostTables = 2'000;

/// Instructions of SQLite's machine that reading a row takes at the most, and rows that no file is
/// too small for.
constexpr std::int64_t kStepsPerRow = 100;
constexpr std::int64_t kFreeRows = 100'000;

/// Only what reading tables needs is allowed, whatever the schema holds.
int authorize(void* /*context*/, int action, const char* /*name*/, const char* /*detail*/,
              const char* /*database*/, const char* /*trigger*/) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_PRAGMA:
    case SQLITE_FUNCTION:
      return SQLITE_OK;
    default:
      return SQLITE_DENY;
  }
}

/// `path` as SQLite's URI wants it: what has a meaning in a URI is written as %XX.
std::string uri_of(const std::filesystem::path& path) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string uri = "file://";
  for (const char byte : std::filesystem::absolute(path).string()) {
    const auto code = static_cast<unsigned char>(byte);
    if (std::isalnum(code) != 0 || byte == '/' || byte == '.' || byte == '-' || byte == '_') {
      uri += byte;
    } else {
      uri += '%';
      uri += kHex[code >> 4];
      uri += kHex[code & 15];
    }
  }
  return uri + "?mode=ro&immutable=1";
}

std::string sql_name(std::string_view name) {
  std::string text = "\"";
  for (const char byte : name) {
    text += byte;
    if (byte == '"') text += byte;
  }
  return text + '"';
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

/// 0 for `base` itself, N for `base`_V<N>, nothing for other names.
std::optional<int> version_of(std::string_view name, std::string_view base) {
  if (same_name(name, base)) return 0;
  if (name.size() < base.size() + 3 ||
      !same_name(name.substr(0, base.size() + 2), std::string(base) + "_V")) {
    return {};
  }
  const std::string_view digits = name.substr(base.size() + 2);
  int version = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), version);
  if (error != std::errc() || end != digits.data() + digits.size() || version <= 0) return {};
  return version;
}

/// Bytes that the file should have by its header; 0 where the header does not say it.
std::int64_t bytes_by_header(std::string_view header) {
  constexpr std::size_t kHeader = 100;
  if (header.size() < kHeader) return 0;
  const auto number = [&](std::size_t at, int bytes) {
    std::int64_t value = 0;
    for (; bytes > 0; --bytes) value = value << 8 | static_cast<unsigned char>(header[at++]);
    return value;
  };
  // The count of pages holds only where the last writer knew of it.
  if (number(24, 4) != number(92, 4)) return 0;
  const std::int64_t page = number(16, 2);
  return (page == 1 ? 65'536 : page) * number(28, 4);
}

}  // namespace

bool SqliteTable::has(std::string_view column) const {
  return std::any_of(columns.begin(), columns.end(),
                     [&](const std::string& name) { return same_name(name, column); });
}

SqliteFile::SqliteFile(const std::filesystem::path& path) : path_(path.string()) {
  InputFile file(path_);
  const std::int64_t bytes = file.size();
  max_rows_ = bytes / kLeastRowBytes;
  const std::int64_t whole = bytes_by_header(file.read(std::min<std::int64_t>(bytes, 100)));
  if (whole > bytes) {
    throw Error(
        "was cut: it has " + std::to_string(bytes) + " of " + std::to_string(whole) + " bytes",
        kAdvice, {.file = path_});
  }
  sqlite3* connection = nullptr;
  const int opened = sqlite3_open_v2(
      uri_of(path).c_str(), &connection,
      SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
      nullptr);
  connection_.reset(connection);
  if (opened != SQLITE_OK) fail("cannot be opened");
  sqlite3_extended_result_codes(connection, 1);
  for (const auto& [option, value] : {std::pair{SQLITE_DBCONFIG_DEFENSIVE, 1},
                                      {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                      {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                      {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
                                      {SQLITE_DBCONFIG_DQS_DDL, 0},
                                      {SQLITE_DBCONFIG_DQS_DML, 0}}) {
    sqlite3_db_config(connection, option, value, nullptr);
  }
  for (const auto& [limit, value] : {std::pair{SQLITE_LIMIT_LENGTH, kLongestValue},
                                     {SQLITE_LIMIT_SQL_LENGTH, 1'000'000},
                                     {SQLITE_LIMIT_COLUMN, kMostColumns},
                                     {SQLITE_LIMIT_EXPR_DEPTH, 100},
                                     {SQLITE_LIMIT_ATTACHED, 0},
                                     {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
                                     {SQLITE_LIMIT_WORKER_THREADS, 0}}) {
    sqlite3_limit(connection, limit, value);
  }
  sqlite3_set_authorizer(connection, authorize, nullptr);

  // Whatever the file makes SQLite do comes to an end, pages that form a circle included.
  budget_ = std::make_unique<std::int64_t>((max_rows_ + kFreeRows) * kStepsPerRow / 1'000);
  sqlite3_progress_handler(
      connection, 1'000,
      [](void* budget) { return --*static_cast<std::int64_t*>(budget) < 0 ? 1 : 0; },
      budget_.get());

  const auto run = [&](const std::string& sql, auto&& row) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(connection, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
      fail("its schema cannot be read");
    }
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> guard(statement, sqlite3_finalize);
    int status = SQLITE_ROW;
    while ((status = sqlite3_step(statement)) == SQLITE_ROW) row(statement);
    if (status != SQLITE_DONE) fail("its schema cannot be read");
  };
  const auto text = [](sqlite3_stmt* statement, int column) {
    const auto* bytes_of_text =
        reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
    return bytes_of_text == nullptr ? std::string() : std::string(bytes_of_text);
  };
  run("PRAGMA cell_size_check=ON", [](sqlite3_stmt*) {});
  run("PRAGMA cache_size=-8192", [](sqlite3_stmt*) {});
  // Virtual tables have no root page: they are code, not data.
  run("SELECT name FROM sqlite_master WHERE type='table' AND rootpage>0", [&](sqlite3_stmt* row) {
    if (tables_.size() >= kMostTables) {
      throw Error("has more than " + std::to_string(kMostTables) + " tables", kAdvice,
                  {.file = path_});
    }
    tables_.push_back({.name = text(row, 0), .columns = {}});
  });
  for (SqliteTable& table : tables_) {
    // The last column says whether a column is computed (2, 3): those are code, too.
    run("PRAGMA table_xinfo(" + sql_name(table.name) + ")", [&](sqlite3_stmt* row) {
      if (sqlite3_column_int(row, 6) == 0) table.columns.push_back(text(row, 1));
    });
  }
}

const SqliteTable* SqliteFile::find_table(std::string_view name) const {
  const SqliteTable* found = nullptr;
  int newest = -1;
  for (const SqliteTable& table : tables_) {
    const std::optional<int> version = version_of(table.name, name);
    if (version && *version > newest) {
      newest = *version;
      found = &table;
    }
  }
  return found;
}

std::int64_t SqliteFile::row_estimate(const SqliteTable& table) {
  sqlite3_stmt* statement = nullptr;
  const std::string sql = "SELECT max(rowid) FROM " + sql_name(table.name);
  // A table without rowids has no estimate.
  if (sqlite3_prepare_v2(connection_.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
    return 0;
  }
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> guard(statement, sqlite3_finalize);
  if (sqlite3_step(statement) != SQLITE_ROW) return 0;
  return std::clamp<std::int64_t>(sqlite3_column_int64(statement, 0), 0, max_rows_);
}

void SqliteFile::fail(const std::string& place) const {
  const char* message =
      connection_ ? sqlite3_errmsg(connection_.get()) : "there is not enough memory";
  throw Error(place + ": " + message, kAdvice, {.file = path_});
}

SqliteRows::SqliteRows(const SqliteFile& file, const SqliteTable& table,
                       std::initializer_list<std::string_view> columns, const std::string& clause)
    : file_(&file), table_(&table), columns_(columns.begin(), columns.end()) {
  std::string sql;
  for (const std::string& column : columns_) {
    const bool present = column == "rowid" || table.has(column);
    present_.push_back(present ? 1 : 0);
    sql += sql.empty() ? "SELECT " : ",";
    sql += present ? sql_name(column) : "NULL";
  }
  sql += " FROM " + sql_name(table.name) + " " + clause;
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(file.connection_.get(), sql.c_str(), -1, &statement, nullptr) !=
      SQLITE_OK) {
    file.fail("table " + printable(table.name) + " cannot be read");
  }
  statement_.reset(statement);
}

bool SqliteRows::next() {
  const int status = sqlite3_step(statement_.get());
  if (status == SQLITE_DONE) return false;
  ++row_;
  if (status != SQLITE_ROW) {
    fail(std::string("cannot be read: ") + sqlite3_errmsg(file_->connection_.get()));
  }
  // Pages that point to one another in a circle would never end.
  if (row_ > file_->max_rows()) fail("cannot be: the file is too small for so many rows");
  return true;
}

void SqliteRows::fail_no_integer(int column) const {
  fail("has no integer in column " + column_name(column));
}

std::optional<std::int64_t> SqliteRows::optional_integer(int column) const {
  if (is_null(column)) return {};
  return integer(column);
}

std::string_view SqliteRows::text(int column) const {
  const int kind = type(column);
  if (kind == SQLITE_NULL) return {};
  if (kind != SQLITE_TEXT) fail("has no text in column " + column_name(column));
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (bytes == nullptr) fail("has a text in column " + column_name(column) + " that is too long");
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

void SqliteRows::fail(const std::string& what) const {
  throw Error("row " + std::to_string(row_) + " of table " + printable(table_->name) + " " + what,
              kAdvice, {.file = file_->path()});
}

std::string SqliteRows::column_name(int column) const {
  return printable(columns_[static_cast<std::size_t>(column)]);
}

}  // namespace stepscope::tracer
