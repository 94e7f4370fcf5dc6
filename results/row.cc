#include "results/row.h"

#include <nlohmann/json.hpp>

#include "results/csv.h"

namespace stepscope::results {
namespace {

const char* type_name(ColumnType type) {
  switch (type) {
    case ColumnType::string:
      return "text";
    case ColumnType::integer:
      return "integers";
    case ColumnType::number:
      return "numbers";
  }
  return "";
}

[[noreturn]] void wrong_type(const Column& column, const std::string& value) {
  throw Error("column " + column.name + " holds " + type_name(column.type) + ", not " + value,
              "see results/schema.json");
}

/// `text` with every byte sequence that is not UTF-8 replaced by U+FFFD. The JSON library already
/// knows how to do that.
std::string valid_utf8(std::string_view text) {
  const nlohmann::json json = std::string(text);
  return nlohmann::json::parse(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
      .get<std::string>();
}

}  // namespace

Row::Row(const Table& table) : table_(&table), values_(table.columns.size()) {
  if (table.find("schema_version")) set_integer("schema_version", schema_version());
}

Row& Row::set(std::string_view column, const std::optional<std::int64_t>& value) {
  if (value) {
    set_integer(column, *value);
  } else {
    clear(column);
  }
  return *this;
}

Row& Row::set(std::string_view column, const std::optional<double>& value) {
  if (value) {
    set_number(column, *value);
  } else {
    clear(column);
  }
  return *this;
}

std::size_t Row::position(std::string_view column) const {
  if (const std::optional<std::size_t> found = table_->find(column)) return *found;
  throw Error("table " + table_->name + " has no column " + std::string(column),
              "see results/schema.json");
}

void Row::set_integer(std::string_view column, std::int64_t value) {
  const std::size_t i = position(column);
  if (table_->columns[i].type == ColumnType::string) {
    wrong_type(table_->columns[i], std::to_string(value));
  }
  values_[i] = csv_integer(value);
}

void Row::set_number(std::string_view column, double value) {
  const std::size_t i = position(column);
  try {
    const std::string text = csv_number(value);
    if (table_->columns[i].type != ColumnType::number) wrong_type(table_->columns[i], text);
    values_[i] = text;
  } catch (const Error& error) {
    throw Error("column " + std::string(column) + ": " + error.what_failed(), error.advice());
  }
}

void Row::set_text(std::string_view column, std::string_view value) {
  const std::size_t i = position(column);
  if (table_->columns[i].type != ColumnType::string) {
    wrong_type(table_->columns[i], "\"" + std::string(value) + "\"");
  }
  values_[i] = valid_utf8(value);
}

void Row::clear(std::string_view column) { values_[position(column)].clear(); }

}  // namespace stepscope::results
