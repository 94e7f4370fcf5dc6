#include "topologies/presets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "topologies/optimizer.h"

namespace stepscope::topologies {
namespace {

// "name dim dim ..." a line, as transformers' named_parameters() gave them.
std::vector<Parameter> published_parameters(const std::string& model) {
  std::ifstream stream(STEPSCOPE_TEST_DATA "/models/" + model + ".named_parameters.txt");
  std::vector<Parameter> parameters;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    Parameter parameter;
    words >> parameter.name;
    for (std::int64_t size = 0; words >> size;) parameter.shape.push_back(size);
    parameters.push_back(parameter);
  }
  return parameters;
}

void expect_published_names_and_shapes(const std::string& name) {
  const Model model = preset(name).value();
  const std::vector<Parameter> published = published_parameters(name);
  ASSERT_EQ(model.parameters.size(), published.size());
  for (std::size_t i = 0; i < published.size(); ++i) {
    EXPECT_EQ(model.parameters[i].name, published[i].name);
    EXPECT_EQ(model.parameters[i].shape, published[i].shape) << published[i].name;
    EXPECT_EQ(model.parameters[i].tied_to, "");
  }
}

TEST(Presets, AllAreValidAndCarryTheirName) {
  for (const std::string& name : preset_names()) {
    const std::optional<Model> model = preset(name);
    ASSERT_TRUE(model.has_value()) << name;
    EXPECT_EQ(model->name, name);
    EXPECT_NO_THROW(validate(*model)) << name;
  }
  EXPECT_FALSE(preset("gpt3").has_value());
}

TEST(Presets, Gpt2HasThePublishedNamesAndShapes) {
  expect_published_names_and_shapes("gpt2");
  EXPECT_EQ(preset("gpt2")->numel(), 124'439'808);
}

TEST(Presets, Llama8bHasThePublishedNamesAndShapes) {
  expect_published_names_and_shapes("llama-3.1-8b");
  EXPECT_EQ(preset("llama-3.1-8b")->numel(), 8'030'261'248);
}

TEST(Presets, Llama405bHasThePublishedSize) {
  const Model model = preset("llama-3.1-405b").value();
  EXPECT_EQ(model.parameters.size(), 1137U);
  EXPECT_EQ(model.numel(), 405'853'388'800);
}

TEST(Presets, LlamasAreBf16AndGptsFp32) {
  for (const std::string& name : preset_names()) {
    const auto expected = name.starts_with("llama") ? kernels::DType::bf16 : kernels::DType::fp32;
    const Model model = preset(name).value();
    EXPECT_TRUE(std::all_of(model.parameters.begin(), model.parameters.end(),
                            [&](const Parameter& p) { return p.dtype == expected; }))
        << name;
  }
}

// The quick model must meet every awkward case that a real one brings.
TEST(Presets, TinyHoldsEveryAwkwardCase) {
  const Model model = preset("tiny").value();
  EXPECT_EQ(model.parameters.size(), 53U);
  EXPECT_EQ(model.numel(), 929'664);
  const auto count = [&](auto&& matches) {
    return std::count_if(model.parameters.begin(), model.parameters.end(), matches);
  };
  EXPECT_EQ(count([](const Parameter& p) { return numel(p) < kMin8bitSize; }), 34);
  EXPECT_GE(count([](const Parameter& p) { return !p.tied_to.empty(); }), 1);
  EXPECT_GE(count([](const Parameter& p) { return p.shape.front() % 2 != 0; }), 1);
  EXPECT_GE(count([](const Parameter& p) {
              return numel(p) >= kMin8bitSize && numel(p) % kernels::kBlockSize != 0;
            }),
            1);
}

}  // namespace
}  // namespace stepscope::topologies
