#include "results/schema.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "results/detail/schema_json.h"

namespace stepscope::results {
namespace {

ColumnType column_type(const std::string& name) {
  if (name == "string") return ColumnType::string;
  if (name == "integer") return ColumnType::integer;
  if (name == "number") return ColumnType::number;
  throw Error("results/schema.json has a column of type \"" + name + "\"");
}

struct Schema {
  std::int64_t version = 0;
  Table results;
  Table samples;
};

Table read_table(const nlohmann::json& tables, const std::string& name) {
  const nlohmann::json& json = tables.at(name);
  Table table{.name = name,
              .file = json.at("file").get<std::string>(),
              .description = json.at("description").get<std::string>(),
              .columns = {}};
  for (const nlohmann::json& column : json.at("columns")) {
    table.columns.push_back({.name = column.at("name").get<std::string>(),
                             .type = column_type(column.at("type").get<std::string>()),
                             .unit = column.at("unit").get<std::string>(),
                             .description = column.at("description").get<std::string>(),
                             .values = column.value("values", std::vector<std::string>())});
  }
  return table;
}

const Schema& schema() {
  static const Schema value = [] {
    const nlohmann::json json = nlohmann::json::parse(detail::kSchemaJson);
    const nlohmann::json& tables = json.at("tables");
    return Schema{.version = json.at("schema_version").get<std::int64_t>(),
                  .results = read_table(tables, "results"),
                  .samples = read_table(tables, "samples")};
  }();
  return value;
}

}  // namespace

std::optional<std::size_t> Table::find(std::string_view column) const {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].name == column) return i;
  }
  return std::nullopt;
}

std::int64_t schema_version() { return schema().version; }
const Table& results_table() { return schema().results; }
const Table& samples_table() { return schema().samples; }

}  // namespace stepscope::results
