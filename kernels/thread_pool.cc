#include "kernels/thread_pool.h"

#include <string>
#include <system_error>

#include "core/error.h"

namespace stepscope::kernels {
namespace {

/// Waits until `value` differs from `old`. The spin covers the few microseconds between two steps
/// or between two workers' ends, which a sleep and a wake-up through the kernel would multiply.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) noexcept {
  constexpr int kSpins = 2000;
  for (int i = 0; i < kSpins; ++i) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  for (;;) {
    value.wait(old, std::memory_order_acquire);
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) : size_(threads) {
  if (threads < 1 || threads > kMaxThreads) {
    throw Error("a pool of " + std::to_string(threads) + " threads was asked for",
                "give a number from 1 to 1024");
  }
  try {
    threads_.reserve(static_cast<std::size_t>(threads - 1));
    for (int worker = 1; worker < threads; ++worker) {
      threads_.emplace_back([this, worker] { work(worker); });
    }
  } catch (const std::system_error& error) {
    stop();
    throw Error("the system refused thread " + std::to_string(threads_.size() + 1) + " of " +
                    std::to_string(threads) + ": " + error.what(),
                "ask for fewer threads, or raise the limit (ulimit -u)");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() noexcept {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ThreadPool::run_erased(ErasedBody body, void* context) noexcept {
  if (size_ == 1) return body(context, 0);
  body_ = body;
  context_ = context;
  running_.store(static_cast<std::uint32_t>(size_ - 1), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  body(context, 0);
  for (std::uint32_t left = running_.load(std::memory_order_acquire); left != 0;) {
    left = wait_for_change(running_, left);
  }
}

void ThreadPool::work(int worker) noexcept {
  std::uint32_t seen = 0;
  for (;;) {
    seen = wait_for_change(generation_, seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    body_(context_, worker);
    // The caller wakes at every change: it must not leave run() before all have finished.
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace stepscope::kernels
