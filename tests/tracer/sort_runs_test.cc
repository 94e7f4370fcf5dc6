#include "tracer/sort_runs.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace stepscope::tracer {
namespace {

using Item = std::pair<int, int>;  ///< key and place

bool less(const Item& a, const Item& b) { return a.first < b.first; }

TEST(SortRuns, SortsAnyNumberOfRunsWithAnyRoomAndKeepsTheOrderOfEquals) {
  std::mt19937 random(3);  // NOLINT(bugprone-random-generator-seed): the same cases every time
  for (const int runs : {0, 1, 2, 3, 7, 64}) {
    for (const int keys : {2, 1'000'000}) {
      for (const std::ptrdiff_t room : {1, 5, 100'000}) {
        std::vector<Item> items;
        for (int run = 0; run < runs; ++run) {
          const auto start = static_cast<std::ptrdiff_t>(items.size());
          for (auto left = random() % 300; left > 0; --left) {
            items.emplace_back(static_cast<int>(random() % static_cast<unsigned>(keys)), 0);
          }
          std::sort(items.begin() + start, items.end());
        }
        for (std::size_t i = 0; i < items.size(); ++i) items[i].second = static_cast<int>(i);
        std::vector<Item> expected = items;
        std::sort(expected.begin(), expected.end());  // by key, then by place
        sort_runs(items.begin(), items.end(), less, room);
        ASSERT_EQ(items, expected) << runs << " runs, " << keys << " keys, room " << room;
      }
    }
  }
}

TEST(SortRuns, SortsWhatHasNoRuns) {
  std::vector<int> numbers(10'000);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int>((i * 7'919) % numbers.size());
  }
  sort_runs(numbers.begin(), numbers.end(), std::less<>(), 10);
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<int>(i));
}

}  // namespace
}  // namespace stepscope::tracer
