#pragma once

/// Purpose: a fixed team of threads that runs one body at a time, for work that is handed out many
/// times a second and must not allocate.
///
/// Usage:
///     ThreadPool pool(2);
///     pool.run([&](int worker) noexcept { ... });  // worker is 0 or 1; 0 is the caller itself
///
/// Caveats: run() from one thread at a time, and not from inside a body. A body cannot throw; that
/// is checked at compile time. A pool of 1 starts no thread. Threads sleep between runs after a
/// short spin.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace stepscope::kernels {

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 1024;

  /// Starts threads - 1 threads; the caller of run() is the other one. Throws Error unless
  /// 1 <= threads <= kMaxThreads, or when the system refuses a thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept { return size_; }

  /// Calls body(worker) once for each worker in [0, size()) and returns when all have returned.
  /// What the caller wrote before is seen by every worker, and the reverse after run(). Allocates
  /// nothing.
  template <typename Body>
  void run(Body&& body) noexcept {
    using Plain = std::remove_reference_t<Body>;
    static_assert(std::is_nothrow_invocable_v<Plain&, int>, "a body must be noexcept");
    run_erased([](void* context, int worker) noexcept { (*static_cast<Plain*>(context))(worker); },
               const_cast<std::remove_const_t<Plain>*>(&body));
  }

 private:
  using ErasedBody = void (*)(void*, int) noexcept;

  void run_erased(ErasedBody body, void* context) noexcept;
  void work(int worker) noexcept;
  void stop() noexcept;

  int size_;
  std::vector<std::thread> threads_;
  ErasedBody body_ = nullptr;
  void* context_ = nullptr;
  std::atomic<std::uint32_t> generation_{0};  // raised by run(); its change releases the workers
  std::atomic<std::uint32_t> running_{0};     // workers that have not finished this generation
  std::atomic<bool> stopping_{false};
};

}  // namespace stepscope::kernels
