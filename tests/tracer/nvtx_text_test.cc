#include "tracer/nvtx_text.h"

#include <gtest/gtest.h>

namespace stepscope::tracer {
namespace {

std::vector<std::vector<std::int64_t>> shapes(const NvtxText& text) {
  std::vector<std::vector<std::int64_t>> all;
  for (const TensorInput& input : text.inputs) all.push_back(input.shape);
  return all;
}

TEST(NvtxText, TakesPyTorchsNumbersOff) {
  for (const char* text : {"aten::add, op_id = 12", "aten::add, seq = 7, op_id = 12",
                           "aten::add, seq = 7", "aten::add, op_id = 1, sizes = []"}) {
    const NvtxText parsed = parse_nvtx_text(text);
    EXPECT_EQ(parsed.name, "aten::add") << text;
    EXPECT_TRUE(parsed.is_operator);
    EXPECT_TRUE(parsed.inputs.empty());
  }
}

TEST(NvtxText, ReadsShapesOfTensorsAndListsOfTensors) {
  const NvtxText parsed =
      parse_nvtx_text("aten::cat, seq = 7, op_id = 12, sizes = [[[2, 3], [4, 3]], [], [5]]");
  EXPECT_EQ(parsed.name, "aten::cat");
  EXPECT_EQ(shapes(parsed), (std::vector<std::vector<std::int64_t>>{{2, 3}, {4, 3}, {5}}));
  EXPECT_EQ(parsed.inputs[0].argument, 0);
  EXPECT_EQ(parsed.inputs[1].argument, 0);
  EXPECT_EQ(parsed.inputs[2].argument, 2);
}

TEST(NvtxText, TakesNothingFromOneListIntoTheNext) {
  const NvtxText parsed = parse_nvtx_text("x, op_id = 1, sizes = [[5, [3]], [[2, 7], [4]]]");
  ASSERT_EQ(parsed.inputs.size(), 3U);
  EXPECT_EQ(parsed.inputs[0].shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(parsed.inputs[0].argument, 0);
  EXPECT_EQ(parsed.inputs[1].shape, (std::vector<std::int64_t>{2, 7}));
  EXPECT_EQ(parsed.inputs[2].shape, std::vector<std::int64_t>{4});
  EXPECT_EQ(parsed.inputs[2].argument, 1);
}

TEST(NvtxText, LeavesOtherTextsAlone) {
  for (const char* text :
       {"", "step 3", "a, b", "x, op_id = ", "x, op_id = 1a", "x, seq = -1",
        "x, op_id = 1, sizes = [[2, 3]", "x, op_id = 1, sizes = [[-2]]",
        "x, op_id = 1, sizes = [[[[1]]]]", "x, op_id = 1, sizes = ]", "x, op_id = 1, sizes = 5",
        "x, op_id = 1, sizes = [[99999999999999999999]]"}) {
    const NvtxText parsed = parse_nvtx_text(text);
    EXPECT_EQ(parsed.name, text);
    EXPECT_FALSE(parsed.is_operator);
    EXPECT_TRUE(parsed.inputs.empty());
  }
}

TEST(NvtxText, TellsOperatorsCollectivesAndRangesApart) {
  const auto described = [](std::string_view text) {
    Event event;
    describe_host_event(parse_nvtx_text(text), event);
    return event;
  };
  const Event add = described("aten::add, op_id = 12, sizes = [[2, 3], [3]]");
  EXPECT_EQ(add.kind, EventKind::host_operator);
  EXPECT_EQ(add.value, 6);
  EXPECT_EQ(add.value_source, ValueSource::exact);
  const Event gather = described("nccl:_all_gather_base, op_id = 4");
  EXPECT_EQ(gather.kind, EventKind::collective);
  EXPECT_EQ(gather.collective, CollectiveKind::all_gather);
  EXPECT_EQ(described("Optimizer.step#AdamW8bit.step, op_id = 4").kind, EventKind::range);
  EXPECT_EQ(described("aten::add").kind, EventKind::range);
  EXPECT_EQ(described("stepscope:step 3").kind, EventKind::range);
}

}  // namespace
}  // namespace stepscope::tracer
