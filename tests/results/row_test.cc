#include "results/row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "core/error.h"

namespace stepscope::results {
namespace {

std::string value(const Row& row, std::string_view column) {
  return row.values().at(row.table().find(column).value());
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Schema, NamesEveryColumnOnceAndDescribesIt) {
  for (const Table* table : {&results_table(), &samples_table()}) {
    std::set<std::string> names;
    for (const Column& column : table->columns) {
      EXPECT_TRUE(names.insert(column.name).second) << column.name;
      EXPECT_TRUE(column.description.ends_with('.')) << column.name;
      EXPECT_EQ(column.name.ends_with("_ns"), column.unit == "ns") << column.name;
      if (column.name.ends_with("_bytes")) {
        EXPECT_EQ(column.unit, "bytes") << column.name;
        EXPECT_EQ(column.type, ColumnType::integer) << column.name;
      }
    }
    EXPECT_EQ(table->columns.front().name, "schema_version");
  }
  EXPECT_EQ(schema_version(), 1);
}

TEST(Row, IsEmptyButForTheSchemaVersion) {
  const Row row(samples_table());
  std::vector<std::string> expected(samples_table().columns.size());
  expected[0] = "1";
  EXPECT_EQ(row.values(), expected);
}

TEST(Row, HoldsEveryTypeInItsPlace) {
  Row row(results_table());
  const std::string text = "OptimizerStep/native";
  row.set("benchmark", text)
      .set("subject", "native")
      .set("optimizer", std::string_view("Lion8bit"));
  row.set("steps", 100).set("world_size", std::size_t{2}).set("local_numel", std::int64_t{1} << 40);
  row.set("bytes_per_parameter", 2.03125);
  EXPECT_EQ(value(row, "benchmark"), text);
  EXPECT_EQ(value(row, "subject"), "native");
  EXPECT_EQ(value(row, "optimizer"), "Lion8bit");
  EXPECT_EQ(value(row, "steps"), "100");
  EXPECT_EQ(value(row, "world_size"), "2");
  EXPECT_EQ(value(row, "local_numel"), "1099511627776");
  EXPECT_EQ(value(row, "bytes_per_parameter"), "2.03125");
}

TEST(Row, TakesAnIntegerForANumber) {
  EXPECT_EQ(value(Row(results_table()).set("saving_vs_fp32_adamw", 0), "saving_vs_fp32_adamw"),
            "0");
}

TEST(Row, LeavesOutWhatIsNotThere) {
  Row row(results_table());
  row.set("p50_ns", std::optional<std::int64_t>(7)).set("p90_ns", std::optional<std::int64_t>());
  row.set("bytes_per_parameter", std::optional(1.5))
      .set("saving_vs_fp32_adamw", std::optional<double>());
  EXPECT_EQ(value(row, "p50_ns"), "7");
  EXPECT_EQ(value(row, "bytes_per_parameter"), "1.5");
  EXPECT_EQ(value(row, "saving_vs_fp32_adamw"), "");
  EXPECT_EQ(value(row, "p90_ns"), "");
  row.set("p50_ns", std::optional<std::int64_t>());
  EXPECT_EQ(value(row, "p50_ns"), "");
}

TEST(Row, RefusesUnknownColumns) {
  Row row(samples_table());
  EXPECT_THAT(error_of([&] { row.set("setp_ns", 1); }),
              testing::HasSubstr("table samples has no column setp_ns"));
  EXPECT_THAT(error_of([&] { row.set("p50_ns", std::optional<std::int64_t>()); }),
              testing::HasSubstr("no column p50_ns"));
}

TEST(Row, RefusesValuesOfAnotherType) {
  Row row(results_table());
  EXPECT_THAT(error_of([&] { row.set("steps", 1.0); }),
              testing::HasSubstr("column steps holds integers, not 1"));
  EXPECT_THAT(error_of([&] { row.set("steps", "1"); }),
              testing::HasSubstr("column steps holds integers, not \"1\""));
  EXPECT_THAT(error_of([&] { row.set("bytes_per_parameter", "2"); }),
              testing::HasSubstr("holds numbers, not \"2\""));
  EXPECT_THAT(error_of([&] { row.set("benchmark", 1); }),
              testing::HasSubstr("column benchmark holds text, not 1"));
  EXPECT_EQ(row.values(), Row(results_table()).values());
}

TEST(Row, RefusesNumbersThatDoNotFitOrDoNotExist) {
  Row row(results_table());
  EXPECT_THAT(error_of([&] { row.set("steps", UINT64_MAX); }), testing::HasSubstr("column steps"));
  EXPECT_THAT(error_of([&] { row.set("bytes_per_parameter", std::nan("")); }),
              testing::HasSubstr("column bytes_per_parameter"));
}

TEST(Row, ReplacesBytesThatAreNotUtf8) {
  Row row(results_table());
  EXPECT_EQ(value(row.set("model",
                          "gr\xc3\xb6\xc3\x9f"
                          "er"),
                  "model"),
            "gr\xc3\xb6\xc3\x9f"
            "er");
  EXPECT_EQ(value(row.set("model",
                          "a\xff"
                          "b"),
                  "model"),
            "a\xef\xbf\xbd"
            "b");
}

}  // namespace
}  // namespace stepscope::results
