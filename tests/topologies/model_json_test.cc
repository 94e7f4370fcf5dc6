#include "topologies/model_json.h"

#include <gtest/gtest.h>

#include "tests/core/damaged.h"
#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

Model read_data(const std::string& name) {
  return read_model_json(STEPSCOPE_TEST_DATA "/models/" + name);
}

std::string error_of(std::string_view text) {
  return error_text([&] { model_from_json(text, "m.json"); });
}

TEST(ModelJson, ReadsAListAndNamesTheModelAfterTheFile) {
  const Model model = read_data("frozen.json");
  EXPECT_EQ(model.name, "frozen");
  ASSERT_EQ(model.parameters.size(), 3U);
  EXPECT_EQ(model.parameters[0].name, "a");
  EXPECT_EQ(model.parameters[0].shape, std::vector<std::int64_t>{8192});
  EXPECT_EQ(model.parameters[0].dtype, kernels::DType::fp32);
  EXPECT_TRUE(model.parameters[0].requires_grad);
  EXPECT_TRUE(model.parameters[0].has_gradient);
  EXPECT_FALSE(model.parameters[1].has_gradient);
  EXPECT_TRUE(model.parameters[1].requires_grad);
  EXPECT_FALSE(model.parameters[2].requires_grad);
}

TEST(ModelJson, ReadsAnObjectWithANameAndDataTypes) {
  const Model model = read_data("mixed_dtypes.json");
  EXPECT_EQ(model.name, "mixed");
  ASSERT_EQ(model.parameters.size(), 3U);
  EXPECT_EQ(model.parameters[1].dtype, kernels::DType::bf16);
  EXPECT_EQ(model.parameters[2].dtype, kernels::DType::fp16);
}

TEST(ModelJson, ReadsTiesScalarsAndEmptyParameters) {
  EXPECT_EQ(read_data("tied.json").parameters[1].tied_to, "embed.weight");
  EXPECT_EQ(read_data("tied.json").numel(), 40);
  EXPECT_EQ(read_data("scalar.json").numel(), 8193);
  EXPECT_EQ(read_data("empty.json").numel(), 8192);
}

TEST(ModelJson, RefusesAModelWithoutParameters) {
  EXPECT_EQ(error_of("[]"), "m.json: model \"m\" has no parameters; there is nothing to measure");
}

TEST(ModelJson, NamesTheLineWhereItIsNotJson) {
  EXPECT_EQ(error_of("[{\"name\": \"w\",\n  shape: [2]}]"),
            "m.json:2: not JSON: \"syntax error while parsing object key - invalid literal; last "
            "read: '\"w\",<U+000A>  s'; expected string literal\"");
}

TEST(ModelJson, RefusesTheWrongStructure) {
  const std::string list = "; write [{\"name\": \"w\", \"shape\": [2, 3]}, ...]";
  EXPECT_EQ(error_of("3"), "m.json: the parameters are no list" + list);
  EXPECT_EQ(error_of(R"({"parameters": {}})"), "m.json: the parameters are no list" + list);
  EXPECT_EQ(error_of("{}"), "m.json: it has no \"parameters\"; add the list");
  EXPECT_EQ(error_of(R"({"name": 3, "parameters": []})"),
            "m.json: the model has a \"name\" that is no string; put it in quotes");
  EXPECT_EQ(error_of("[3]"),
            "m.json: parameters[0] is no object; write {\"name\": \"w\", \"shape\": [2, 3]}");
  EXPECT_EQ(error_of(R"([{"name": "a", "shape": [1]}, {"shape": [1]}])"),
            "m.json: parameters[1] has no \"name\"; add it");
  EXPECT_EQ(error_of(R"([{"name": "a"}])"),
            "m.json: parameter a: it has no list \"shape\"; add it, e.g. \"shape\": [2, 3]");
}

TEST(ModelJson, RefusesUnknownKeys) {
  EXPECT_EQ(error_of(R"([{"name": "a", "shape": [1], "require_grad": false}])"),
            "m.json: parameter a: unknown key \"require_grad\"; known keys: name, shape, dtype, "
            "requires_grad, has_gradient, tied_to");
  EXPECT_EQ(error_of(R"({"metadata": {}, "weight_map": {"a": "b"}})"),
            "m.json: unknown key \"metadata\"; known keys: name, parameters");
}

TEST(ModelJson, RefusesValuesOfTheWrongType) {
  EXPECT_EQ(error_of(R"([{"name": "a", "shape": [2, -1]}])"),
            "m.json: parameter a: a dimension is \"-1\"; give a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(error_of(R"([{"name": "a", "shape": [2.0]}])"),
            "m.json: parameter a: a dimension is \"2.0\"; give a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(error_of(R"([{"name": "a", "shape": [2], "dtype": "int8"}])"),
            "m.json: parameter a: unknown data type \"int8\"; use fp32, bf16 or fp16");
  EXPECT_EQ(error_of(R"([{"name": "a", "shape": [2], "dtype": 32}])"),
            "m.json: parameter a: it has a \"dtype\" that is no string; put it in quotes");
  EXPECT_EQ(error_of(R"([{"name": "a", "shape": [2], "requires_grad": "no"}])"),
            "m.json: parameter a: \"requires_grad\" is neither true nor false; use one of them");
  EXPECT_EQ(error_of(R"([{"name": "a", "shape": [2], "tied_to": null}])"),
            "m.json: parameter a: it has a \"tied_to\" that is no string; put it in quotes");
  EXPECT_EQ(error_of("[{\"name\": \"\\u001b[2J\", \"shape\": []}]"),
            "m.json: the name \"\\x1b[2J\" of a parameter cannot be shown: it holds a control "
            "character or is not UTF-8; rename it");
}

TEST(ModelJson, RefusesADirectoryAndAMissingFile) {
  const std::string folder = STEPSCOPE_TEST_DATA "/models";
  EXPECT_EQ(error_text([&] { read_model_json(folder); }),
            folder + ": this is a directory; name a file in it");
  EXPECT_EQ(error_text([&] { read_model_json(folder + "/none.json"); }),
            folder + "/none.json: no such file; check the path");
}

// Any damage must end in a model or in one Error, never in a crash or in another exception.
TEST(ModelJson, SurvivesRandomDamage) {
  const std::string good =
      R"({"name": "m", "parameters": [{"name": "a", "shape": [5, 8], "dtype": "bf16"},)"
      R"({"name": "b", "shape": [5, 8], "dtype": "bf16", "tied_to": "a"},)"
      R"({"name": "c", "shape": [], "requires_grad": false, "has_gradient": true}]})";
  Damage damage(3);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = damage.of(good);
    try {
      validate(model_from_json(text, "m.json"));
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 10'000);
}

}  // namespace
}  // namespace stepscope::topologies
