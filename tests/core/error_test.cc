#include "core/error.h"

#include <gtest/gtest.h>

namespace stepscope {
namespace {

TEST(Error, SaysWhereWhatAndWhatToDoOnOneLine) {
  const Error error("the shape\nhas a hole", "fix it",
                    {.rank = 1, .parameter = "wte", .file = "m.json", .line = 7});
  EXPECT_STREQ(error.what(), "rank 1: m.json:7: parameter wte: the shape has a hole; fix it");
}

TEST(Error, LeavesOutWhatIsUnknown) { EXPECT_STREQ(Error("no disk").what(), "no disk"); }

TEST(Error, KeepsTheFirstRankItWasGiven) {
  EXPECT_STREQ(Error("x").with_rank(3).what(), "rank 3: x");
  EXPECT_STREQ(Error("x").with_rank(3).with_rank(4).what(), "rank 3: x");
}

}  // namespace
}  // namespace stepscope
