#include "topologies/wrapping.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/core/temp_file.h"
#include "topologies/load_model.h"

namespace stepscope::topologies {
namespace {

using Units = std::vector<std::vector<std::size_t>>;

Model model_of(const std::vector<std::string>& names) {
  Model model{.name = "m", .parameters = {}};
  for (const std::string& name : names) {
    model.parameters.push_back({.name = name, .shape = {2, 3}});
  }
  return model;
}

const Model& layers() {
  static const Model model = model_of({"scale", "embed.weight", "h.0.ln.weight", "h.0.ln.bias",
                                       "h.0.fc.weight", "h.1.ln.weight", "h.1.ln.bias", "bias"});
  return model;
}

Units units_of(const Model& model, std::vector<std::vector<std::string>> list) {
  return wrap(model, {.policy = WrapPolicy::list, .units = std::move(list)});
}

TEST(Wrapping, GroupsByPolicyInTheOrderOfTheModel) {
  EXPECT_EQ(wrap(layers(), {.policy = WrapPolicy::per_parameter}),
            (Units{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_EQ(wrap(layers(), {.policy = WrapPolicy::per_module}),
            (Units{{0, 7}, {1}, {2, 3}, {4}, {5, 6}}));
  EXPECT_EQ(wrap(layers(), {.policy = WrapPolicy::whole_model}), (Units{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

TEST(WrappingList, TakesNamesOfParametersAndOfModules) {
  EXPECT_EQ(units_of(layers(), {{"h.1"}, {"embed", "h.0", "scale"}, {"bias"}}),
            (Units{{0, 1, 2, 3, 4}, {5, 6}, {7}}));
  EXPECT_EQ(units_of(layers(), {{"h.0.ln", "h.0.fc.weight", "h.1"}, {"embed", "scale", "bias"}}),
            (Units{{0, 1, 7}, {2, 3, 4, 5, 6}}));
}

// "h.1" is a module, and "h.10" is not below it.
TEST(WrappingList, DoesNotTakeTheBeginningOfANameForAModule) {
  const Model model = model_of({"h.1.w", "h.10.w"});
  EXPECT_EQ(units_of(model, {{"h.1"}, {"h.10"}}), (Units{{0}, {1}}));
  EXPECT_EQ(error_text([&] { units_of(model, {{"h.1"}}); }),
            "parameter h.10.w: no unit of the wrapping names it; add it, or its module, to a unit");
}

TEST(WrappingList, RefusesAParameterInNoUnitOrInTwo) {
  EXPECT_EQ(error_text([] { units_of(layers(), {{"h"}, {"scale", "bias"}}); }),
            "parameter embed.weight: no unit of the wrapping names it; add it, or its module, to a "
            "unit");
  EXPECT_EQ(error_text([] { units_of(layers(), {{"h"}, {"scale", "bias", "embed"}, {"h.1"}}); }),
            "parameter h.1.ln.weight: unit 0 and unit 2 of the wrapping both name it; name every "
            "parameter in one unit");
  EXPECT_EQ(error_text([] { units_of(layers(), {{"h"}, {"scale", "h"}}); }),
            "the wrapping names \"h\" twice, in unit 0 and in unit 1; name it once");
  EXPECT_EQ(error_text([] { units_of(layers(), {{"h", "scale", "bias", "embed"}, {"head"}}); }),
            "unit 1 of the wrapping names \"head\", and the model has no parameter or module of "
            "that name; use names as the model has them");
  EXPECT_EQ(error_text([] { units_of(layers(), {{"h", "scale", "bias", "embed"}, {}}); }),
            "unit 1 of the wrapping is empty; leave it out");
  EXPECT_EQ(error_text([] { units_of(layers(), {}); }),
            "parameter scale: no unit of the wrapping names it; add it, or its module, to a unit");
}

// The upstream bug: two groups held the tied matrix, and the rows of the second never trained.
TEST(Wrapping, HoldsATiedParameterOnceOrRefusesTwoUnitsForIt) {
  const Model model = load_model(STEPSCOPE_TEST_DATA "/models/tied.json");
  ASSERT_EQ(model.parameters.size(), 2U);
  const std::string tied = model.parameters[1].name;
  for (const WrapPolicy policy :
       {WrapPolicy::per_parameter, WrapPolicy::per_module, WrapPolicy::whole_model}) {
    EXPECT_EQ(wrap(model, {.policy = policy}), (Units{{0}}));
  }
  EXPECT_EQ(units_of(model, {{"embed.weight", tied}}), (Units{{0}}));
  EXPECT_EQ(error_text([&] { units_of(model, {{"embed.weight"}, {tied}}); }),
            "parameter " + tied +
                ": it is tied to embed.weight, and the wrapping puts it in unit 1 and its owner in "
                "unit 0; put both in one unit: two units would train two copies");
}

TEST(Wrapping, RefusesByNameWhatPyTorchDoesNotFlatten) {
  Model model = layers();
  model.parameters[3].requires_grad = false;
  EXPECT_EQ(error_text([&] { wrap(model, {.policy = WrapPolicy::per_module}); }),
            "parameter h.0.ln.bias: it is frozen and h.0.ln.weight of the same fsdp1 unit is "
            "trainable; with use_orig_params=False a unit is trainable or frozen as a whole: wrap "
            "them apart");
  EXPECT_EQ(wrap(model, {.policy = WrapPolicy::per_parameter}).size(), 8U);
  model = layers();
  model.parameters[6].dtype = kernels::DType::bf16;
  EXPECT_EQ(error_text([&] { wrap(model, {.policy = WrapPolicy::per_module}); }),
            "parameter h.1.ln.bias: it is bf16 and h.1.ln.weight of the same fsdp1 unit is fp32; a "
            "flat unit has one data type: wrap them apart");
  model = layers();
  model.parameters[1].shape = {};
  EXPECT_EQ(error_text([&] { wrap(model, {.policy = WrapPolicy::per_parameter}); }),
            "parameter embed.weight: it is a scalar (shape ()), which fsdp1 cannot shard; give it "
            "shape (1,), or use topology single or ddp");
}

TEST(Wrapping, RefusesAUnitWithoutElements) {
  Model model = layers();
  model.parameters[1].shape = {0, 4};
  EXPECT_EQ(error_text([&] { wrap(model, {.policy = WrapPolicy::per_module}); }),
            "parameter embed.weight: its fsdp1 unit has no elements, which PyTorch cannot flatten; "
            "wrap it together with a parameter that has some");
  EXPECT_EQ(wrap(model, {.policy = WrapPolicy::whole_model}).size(), 1U);
}

TEST(LoadWrapping, ReadsPoliciesAndFiles) {
  for (const WrapPolicy policy :
       {WrapPolicy::per_parameter, WrapPolicy::per_module, WrapPolicy::whole_model}) {
    EXPECT_EQ(load_wrapping(std::string(wrap_policy_name(policy))).policy, policy);
  }
  const TempFile file("units.json", R"([["embed", "scale"], ["h.0"]])");
  const Wrapping wrapping = load_wrapping(file.path());
  EXPECT_EQ(wrapping.policy, WrapPolicy::list);
  EXPECT_EQ(wrapping.units, (std::vector<std::vector<std::string>>{{"embed", "scale"}, {"h.0"}}));
}

TEST(LoadWrapping, RefusesWhatIsNoWrapping) {
  EXPECT_EQ(error_text([] { load_wrapping("per-layer"); }),
            "unknown wrapping \"per-layer\"; use per-parameter, per-module, whole-model, or a "
            ".json file with a list of units");
  EXPECT_NE(error_text([] { load_wrapping("list"); }).find("unknown wrapping"), std::string::npos);
  const auto refused = [](const std::string& text) {
    const TempFile file("units.json", text);
    return error_text([&] { load_wrapping(file.path()); });
  };
  const std::string advice = R"(write a list of units: [["embed"], ["layers.0", "layers.1"]])";
  EXPECT_NE(refused("{}").find("this is no list; " + advice), std::string::npos);
  EXPECT_NE(refused(R"([["a"], "b"])").find("unit 1 is no list of names; " + advice),
            std::string::npos);
  EXPECT_NE(refused(R"([["a", 1]])").find("unit 0 holds what is no string; " + advice),
            std::string::npos);
  EXPECT_NE(refused(R"([[["a"]]])").find("nested deeper than 2"), std::string::npos);
  EXPECT_NE(refused("[[").find("not JSON"), std::string::npos);
}

}  // namespace
}  // namespace stepscope::topologies
