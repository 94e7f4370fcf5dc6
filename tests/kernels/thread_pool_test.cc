#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "core/error.h"

namespace stepscope::kernels {
namespace {

TEST(ThreadPool, CallsEveryWorkerOnceARunAndTheCallerIsWorkerZero) {
  for (const int size : {1, 2, 5}) {
    ThreadPool pool(size);
    std::array<int, 5> calls{};  // each worker writes its own; run() publishes them
    std::thread::id zero;
    for (int run = 1; run <= 2000; ++run) {
      pool.run([&](int worker) noexcept {
        ++calls[static_cast<std::size_t>(worker)];
        if (worker == 0) zero = std::this_thread::get_id();
      });
      for (int worker = 0; worker < size; ++worker) {
        ASSERT_EQ(calls[static_cast<std::size_t>(worker)], run);
      }
    }
    EXPECT_EQ(zero, std::this_thread::get_id());
  }
}

TEST(ThreadPool, WorkersSleepAndWakeAgain) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int run = 0; run < 5; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.run([&](int) noexcept { calls.fetch_add(1); });
  }
  EXPECT_EQ(calls.load(), 15);
}

TEST(ThreadPool, EndsWithoutEverRunning) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, RefusesImpossibleSizes) {
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(ThreadPool(-1), Error);
  EXPECT_THROW(ThreadPool(100000), Error);
}

}  // namespace
}  // namespace stepscope::kernels
