#include "results/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <fstream>
#include <limits>
#include <locale>

#include "core/error.h"
#include "core/parse.h"
#include "tests/results/scratch.h"

namespace stepscope::results {
namespace {

std::string record(std::vector<std::string> fields) { return csv_record(fields); }

class CsvFile : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    const std::filesystem::path path = scratch_.path() / "table.csv";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::string error_of(const std::string& text) {
    const std::filesystem::path path = write(text);
    try {
      read_csv(path);
    } catch (const Error& error) {
      std::string message = error.what();
      const std::size_t at = message.find(path.string());
      return at == 0 ? message.substr(path.string().size()) : "no path in: " + message;
    }
    return "no error";
  }

  Scratch scratch_;
};

TEST(CsvRecord, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(record({"BM<int, \"x\">", "10"}), "\"BM<int, \"\"x\"\">\",10\n");
  EXPECT_EQ(record({"a b", "a;b", "'"}), "a b,a;b,'\n");
  EXPECT_EQ(record({"two\nlines", "cr\r", "\""}), "\"two\nlines\",\"cr\r\",\"\"\"\"\n");
}

TEST(CsvRecord, LeavesMissingValuesEmpty) {
  EXPECT_EQ(record({"", "", "x", ""}), ",,x,\n");
  EXPECT_EQ(record({""}), "\"\"\n");  // a blank line would be no record
}

TEST(CsvRecord, RefusesNulBytes) { EXPECT_THROW(record({std::string("a\0b", 3)}), Error); }

TEST(CsvInteger, IsExactInAll64Bits) {
  EXPECT_EQ(csv_integer(INT64_MAX), "9223372036854775807");
  EXPECT_EQ(csv_integer(INT64_MIN), "-9223372036854775808");
  EXPECT_EQ(csv_integer(9007199254740993), "9007199254740993");  // 2^53 + 1: no double holds it
}

TEST(CsvNumber, IsTheShortestTextThatReadsBackEqual) {
  EXPECT_EQ(csv_number(0.1), "0.1");
  EXPECT_EQ(csv_number(2.03125), "2.03125");
  EXPECT_EQ(csv_number(0), "0");
  for (const double value : {1.0 / 3, 0.74609375, 5e-324, -2.2250738585072014e-308,
                             std::numeric_limits<double>::max()}) {
    EXPECT_EQ(parse_double("value", csv_number(value)), value);
  }
}

TEST(CsvNumber, IsNeverNanOrInfinite) {
  EXPECT_THROW(csv_number(std::nan("")), Error);
  EXPECT_THROW(csv_number(std::numeric_limits<double>::infinity()), Error);
  EXPECT_THROW(csv_number(-std::numeric_limits<double>::infinity()), Error);
}

/// 19260.6 as a German would write it: 19.260,6.
class German : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST_F(CsvFile, DoesNotLookAtTheLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new German));
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // printf's and strtod's, where it is installed
  const std::string text = record({csv_integer(19260), csv_number(19260.6)});
  const CsvTable table = read_csv(write("a,b\n" + text));
  std::locale::global(before);
  std::setlocale(LC_ALL, "C");
  EXPECT_EQ(text, "19260,19260.6\n");
  EXPECT_EQ(table.integer(table.rows[0], 0), 19260);
  EXPECT_EQ(table.number(table.rows[0], 1), 19260.6);
}

TEST_F(CsvFile, ReadsBackWhatWasWritten) {
  const std::vector<std::vector<std::string>> rows = {
      {"BM<int, \"x\">", "10", ""}, {"two\nlines", "", "\"\""}, {"\r\n", ",", " x "}, {"", "", ""}};
  std::string text = record({"name", "steps", "it, \"too\""});
  for (const auto& row : rows) text += csv_record(row);
  const CsvTable table = read_csv(write(text));
  EXPECT_EQ(table.header, (std::vector<std::string>{"name", "steps", "it, \"too\""}));
  ASSERT_EQ(table.rows.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(table.rows[i].fields, rows[i]);
  EXPECT_EQ(table.rows[2].line, 5);  // one record before it takes two lines
  EXPECT_EQ(table.integer(table.rows[0], table.column("steps")), 10);
  EXPECT_EQ(table.integer(table.rows[1], table.column("steps")), std::nullopt);
}

TEST_F(CsvFile, ReadsCarriageReturnsAndAByteOrderMark) {
  const CsvTable table =
      read_csv(write("\xef\xbb\xbf"
                     "a,b\r\n1,\"2\"\r\n"));
  EXPECT_EQ(table.header, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(table.rows.at(0).fields, (std::vector<std::string>{"1", "2"}));
}

TEST_F(CsvFile, AHeaderAloneIsATableWithoutRows) {
  EXPECT_TRUE(read_csv(write("a,b\n")).rows.empty());
}

TEST_F(CsvFile, TornRowsAreErrorsWithTheirLine) {
  EXPECT_THAT(error_of("a,b,c\n1,2,3\n1,2\n"), testing::StartsWith(":3: the row has 2 fields"));
  EXPECT_THAT(error_of("a,b\n\"x\ny\",2\n1,2,3\n"), testing::StartsWith(":4: the row has 3"));
  EXPECT_THAT(error_of("a,b\n1,5;2,7\n"), testing::StartsWith(":2: the row has 3 fields"));
  EXPECT_THAT(error_of("a,b\n\n1,2\n"), testing::StartsWith(":2: the row has 1 field,"));
}

TEST_F(CsvFile, AFileThatWasCutOffIsAnErrorEvenBetweenTwoDigits) {
  EXPECT_THAT(error_of("a,b\n1,2\n1,23"), testing::StartsWith(":3: the last line has no line end"));
  EXPECT_THAT(error_of("a,b"), testing::StartsWith(":1: the last line has no line end"));
  EXPECT_THAT(error_of(""), testing::StartsWith(":1: the file is empty"));
}

TEST_F(CsvFile, MisplacedQuotesAreErrors) {
  EXPECT_THAT(error_of("a,b\n1,\"2\n3,4\n"), testing::StartsWith(":2: a quote opened"));
  EXPECT_THAT(error_of("a,b\n1,2\"3\"\n"), testing::StartsWith(":2: a quote stands inside"));
  EXPECT_THAT(error_of("a,b\n1,\"2\"3\n"), testing::StartsWith(":2: text follows a closing"));
}

TEST_F(CsvFile, ControlBytesAreErrors) {
  EXPECT_THAT(error_of("a,b\n1\r2,3\n"), testing::StartsWith(":2: a carriage return stands"));
  EXPECT_THAT(error_of(std::string("a,b\n1,\0\n", 8)),
              testing::StartsWith(":2: the line holds a NUL"));
}

TEST_F(CsvFile, AHeaderMayNameAColumnOnce) {
  EXPECT_THAT(error_of("a,b,a\n"), testing::StartsWith(":1: the header names column \"a\" twice"));
}

TEST_F(CsvFile, PathsThatCannotBeReadAreErrors) {
  EXPECT_THROW(read_csv(scratch_.path() / "absent.csv"), Error);
  EXPECT_THROW(read_csv(scratch_.path()), Error);
}

TEST_F(CsvFile, NumbersOfALocaleAreErrorsWithLineAndColumn) {
  const CsvTable table =
      read_csv(write("name,real\nx,\"19,260.6\"\nx,\"1,5\"\nx,nan\nx, 1\nx,1.5\n"));
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string line = ":" + std::to_string(i + 2) + ": column real is";
    try {
      table.number(table.rows[i], 1);
      ADD_FAILURE() << "line " << i + 2 << " was read";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(line));
    }
    EXPECT_THROW(table.integer(table.rows[i], 1), Error);
  }
  EXPECT_EQ(table.number(table.rows[4], 1), 1.5);
  EXPECT_THROW(table.integer(table.rows[4], 1), Error);
}

TEST_F(CsvFile, AMissingColumnIsNamed) {
  const CsvTable table = read_csv(write("a,b\n"));
  EXPECT_EQ(table.find("p50_ns"), std::nullopt);
  try {
    table.column("p50_ns");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no column p50_ns"));
  }
}

}  // namespace
}  // namespace stepscope::results
