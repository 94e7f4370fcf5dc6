#include "topologies/counting_allocator.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace stepscope::topologies {
namespace {

class CountingAllocator : public testing::Test {
 protected:
  void SetUp() override {
    install_counting_allocator();
    before_ = allocated().current;
    reset_peak_allocated();
  }
  std::int64_t before_ = 0;
};

TEST_F(CountingAllocator, CountsWhatTensorsHoldAndHeldAtMost) {
  {
    const auto a = at::empty({1000}, at::kFloat);
    {
      const auto b = at::empty({500}, at::kByte);
    }
    EXPECT_EQ(allocated().current - before_, 4000);
    EXPECT_EQ(allocated().peak - before_, 4500);
    reset_peak_allocated();
    EXPECT_EQ(allocated().peak - before_, 4000);
  }
  EXPECT_EQ(allocated().current, before_);
  EXPECT_EQ(allocated().peak - before_, 4000);
}

TEST_F(CountingAllocator, CountsTemporariesOfOperators) {
  const auto a = at::empty({1000}, at::kFloat).fill_(1);
  reset_peak_allocated();
  const auto sum = a.add(a).sum();
  EXPECT_GE(allocated().peak - before_, 8000);
}

TEST_F(CountingAllocator, KeepsLibtorchsAlignment) {
  for (const std::int64_t size : {1, 63, 64, 65, 4097}) {
    const auto tensor = at::empty({size}, at::kByte);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0U);
  }
}

TEST_F(CountingAllocator, HandlesEmptyTensorsAndStoragesThatGrow) {
  const auto empty = at::empty({0}, at::kFloat);
  auto grown = at::empty({4}, at::kFloat);
  grown.fill_(3);
  grown.resize_({1000});
  EXPECT_EQ(grown[3].item<float>(), 3);
  EXPECT_EQ(allocated().current - before_, 4000);
}

}  // namespace
}  // namespace stepscope::topologies
