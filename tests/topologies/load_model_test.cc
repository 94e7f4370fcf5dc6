#include "topologies/load_model.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/core/temp_file.h"

namespace stepscope::topologies {
namespace {

TEST(LoadModel, TakesThePresetOfThatName) {
  EXPECT_EQ(load_model("gpt2").numel(), 124'439'808);
  EXPECT_EQ(load_model("tiny").name, "tiny");
}

TEST(LoadModel, ReadsAFileByItsEnding) {
  EXPECT_EQ(load_model(STEPSCOPE_TEST_DATA "/models/frozen.json").parameters.size(), 3U);
  const TempFile file("m.safetensors", "");
  EXPECT_EQ(
      error_text([&] { load_model(file.path()); }),
      file.path() + ": it is only 0 bytes long; this is no .safetensors file, or it is truncated");
}

TEST(LoadModel, ListsWhatThereIsForAnUnknownName) {
  for (const std::string name : {"GPT2", "", "model.bin", "gpt2 "}) {
    EXPECT_EQ(
        error_text([&] { load_model(name); }),
        "unknown model \"" + name +
            "\"; use tiny, gpt2, llama-3.1-8b, llama-3.1-405b, or a file that ends in .json or "
            ".safetensors");
  }
}

}  // namespace
}  // namespace stepscope::topologies
