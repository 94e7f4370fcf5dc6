#pragma once

/// Purpose: one row of a table of the schema; what is not set is written as an empty field.
///
/// Usage:
///     Row row(results_table());
///     row.set("benchmark", name).set("steps", 100).set("p50_ns", percentile(step_ns, 50));
///
/// Caveats: `schema_version` is set already. An integer is accepted where a number is wanted, as in
/// JSON; nothing else is converted. Bytes that are not UTF-8 become U+FFFD, so that every reader
/// can open the file. A Row keeps a reference to its Table.

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "results/schema.h"

namespace stepscope::results {

class Row {
 public:
  explicit Row(const Table& table);

  /// Sets a column and returns this row. Throws Error when the table has no such column, when the
  /// value's type is not the column's, and when a number is not finite.
  template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>)
  Row& set(std::string_view column, T value) {
    if (!std::in_range<std::int64_t>(value)) {
      throw Error("column " + std::string(column) + " cannot hold " + std::to_string(value) +
                  ", which exceeds 64 bits with sign");
    }
    set_integer(column, static_cast<std::int64_t>(value));
    return *this;
  }
  Row& set(std::string_view column, double value) {
    set_number(column, value);
    return *this;
  }
  template <std::convertible_to<std::string_view> T>
  Row& set(std::string_view column, const T& value) {
    set_text(column, value);
    return *this;
  }
  Row& set(std::string_view column, bool value) = delete;
  Row& set(std::string_view column, char value) = delete;

  /// Nothing leaves the field empty; the column must exist all the same.
  Row& set(std::string_view column, const std::optional<std::int64_t>& value);
  Row& set(std::string_view column, const std::optional<double>& value);

  const Table& table() const noexcept { return *table_; }

  /// The values in the table's order, unquoted; empty where nothing was set.
  const std::vector<std::string>& values() const noexcept { return values_; }

 private:
  std::size_t position(std::string_view column) const;
  void set_integer(std::string_view column, std::int64_t value);
  void set_number(std::string_view column, double value);
  void set_text(std::string_view column, std::string_view value);
  void clear(std::string_view column);

  const Table* table_;
  std::vector<std::string> values_;
};

}  // namespace stepscope::results
