#include "topologies/strict_json.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  return error_text([&] { parse_strict_json(text, "m.json", limits); });
}

TEST(StrictJson, ReadsWhatIsJson) {
  const std::string text =
      R"( {"a":[1,{"a":-2},[],"x",[[true],null]],"b":{"c":{},"d":0.5},"e":18446744073709551615} )";
  EXPECT_EQ(parse_strict_json(text, "", {}), nlohmann::json::parse(text));
  EXPECT_EQ(parse_strict_json("7", "", {}), 7);
}

TEST(StrictJson, NamesFileAndLineOfASyntaxError) {
  EXPECT_EQ(
      error_of("[1,\n2,\n]\n"),
      "m.json:3: not JSON: \"syntax error while parsing value - unexpected ']'; expected '[', "
      "'{', or a literal\"");
  for (const char* text : {"", " ", "[", "{", "{\"a\"}", "[1] 2", "nul", "\"\xff\"", "[1,]"}) {
    EXPECT_EQ(error_of(text).rfind("m.json:1: not JSON: ", 0), 0U) << text << error_of(text);
  }
}

TEST(StrictJson, RefusesANulByteInsteadOfEndingThere) {
  EXPECT_EQ(error_of(std::string_view("[1]\n\0[", 6)), "m.json:2: not JSON: a NUL byte");
}

TEST(StrictJson, RefusesARepeatedKeyOfOneObjectOnly) {
  EXPECT_EQ(error_of(R"({"a": 1, "b": {"a": 1}, "a": 2})"),
            "m.json: the key \"a\" occurs twice in one object; keep one of the two");
  EXPECT_EQ(error_of(R"([{"a": 1}, {"a": 1}])"), "no error");
}

TEST(StrictJson, RefusesMoreDepthThanAllowed) {
  EXPECT_EQ(error_of("[[1]]", {.max_depth = 2}), "no error");
  EXPECT_EQ(error_of("[[], [{}]]", {.max_depth = 2}),
            "m.json: the JSON is nested deeper than 2; this is no description of a model");
  EXPECT_EQ(error_of(std::string(1'000'000, '['), {.max_depth = 8}),
            "m.json: the JSON is nested deeper than 8; this is no description of a model");
}

TEST(StrictJson, RefusesMoreValuesThanAllowed) {
  EXPECT_EQ(error_of("[1,2,3,4,5,6,7,8]", {.max_values = 10}), "no error");
  EXPECT_EQ(error_of("[1,2,3,4,5,6,7,8,9,10,11]", {.max_values = 10}),
            "m.json: the JSON has more than 10 values; this is no description of a model");
}

// A reader that looks at every member again for each new one does not end here.
TEST(StrictJson, TakesTimeInProportionToTheMembersOfAnObject) {
  std::string text = "{\"0\": {}";
  for (int i = 1; i < 1'000'000; ++i) text += ",\"" + std::to_string(i) + "\":{}";
  EXPECT_EQ(parse_strict_json(text + "}", "", {}).size(), 1'000'000U);
}

TEST(StrictJson, CutsALongTokenOutOfTheMessage) {
  EXPECT_LT(error_of("[" + std::string(1'000'000, 'x') + "]").size(), 300U);
  EXPECT_LT(error_of("[1e" + std::string(1'000'000, '9') + "]").size(), 300U);
}

TEST(NonNegativeInteger, AcceptsIntegersThatFit) {
  EXPECT_EQ(non_negative_integer(nlohmann::json::parse("0"), "n", {}), 0);
  EXPECT_EQ(non_negative_integer(nlohmann::json::parse("9223372036854775807"), "n", {}),
            9223372036854775807);
}

TEST(NonNegativeInteger, RefusesEverythingElse) {
  for (const char* text : {"-1", "9223372036854775808", "18446744073709551616", "1.0", "1e3",
                           "\"1\"", "null", "true", "[1]"}) {
    EXPECT_NE(error_text([&] { non_negative_integer(nlohmann::json::parse(text), "n", {}); }),
              "no error")
        << text;
  }
  EXPECT_EQ(error_text([] {
              non_negative_integer(nlohmann::json(-1), "a dimension", {.parameter = "w"});
            }),
            "parameter w: a dimension is \"-1\"; give a whole number from 0 to 2^63 - 1");
}

}  // namespace
}  // namespace stepscope::topologies
