#include "results/stragglers.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace stepscope::results {
namespace {

using Column = std::vector<std::int64_t>;

TEST(Stragglers, OfNoStepsThereAreNone) {
  EXPECT_TRUE(find_stragglers(Column{}, Column{}, Column{}).empty());
}

TEST(Stragglers, TheMostFrequentRankIsFirstWithItsMedianAndLargestLead) {
  const Column step = {100, 140, 200, 90, 110};
  const Column rank = {3, 3, 0, 3, 1};
  const Column middle = {90, 100, 195, 89, 110};
  const auto found = find_stragglers(step, rank, middle);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[0].steps, 3);
  EXPECT_EQ(found[0].p50_lead_ns, 10);  // of 10, 40 and 1
  EXPECT_EQ(found[0].max_lead_ns, 40);
  EXPECT_EQ(found[1].rank, 0);
  EXPECT_EQ(found[1].p50_lead_ns, 5);
  EXPECT_EQ(found[2].rank, 1);
  EXPECT_EQ(found[2].max_lead_ns, 0);
}

TEST(Stragglers, LeadsAreExactWhereADoubleIsNot) {
  const std::int64_t large = std::int64_t{1} << 62;
  const auto found = find_stragglers(Column{large + 1}, Column{0}, Column{large});
  EXPECT_EQ(found.front().p50_lead_ns, 1);
}

TEST(Stragglers, ColumnsThatDoNotBelongTogetherAreRefused) {
  EXPECT_THROW(find_stragglers(Column{1, 2}, Column{0}, Column{1, 1}), Error);
  EXPECT_THROW(find_stragglers(Column{1}, Column{0}, Column{}), Error);
  EXPECT_THROW(find_stragglers(Column{1}, Column{0}, Column{2}), Error);
  EXPECT_THROW(find_stragglers(Column{1}, Column{0}, Column{-1}), Error);
}

}  // namespace
}  // namespace stepscope::results
