#include "topologies/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>

namespace stepscope::topologies {
namespace {

std::atomic<std::int64_t> current_bytes{0};
std::atomic<std::int64_t> peak_bytes{0};

// The size of a block stands in front of its data; one cache line keeps libtorch's alignment of 64.
constexpr std::size_t kHeader = 64;

void count(std::int64_t change) {
  const std::int64_t now = current_bytes.fetch_add(change, std::memory_order_relaxed) + change;
  std::int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void release(void* data) {
  if (data == nullptr) return;
  auto* block = static_cast<std::byte*>(data) - kHeader;
  std::int64_t size = 0;
  std::memcpy(&size, block, sizeof size);
  count(-size);
  c10::free_cpu(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    auto* block = static_cast<std::byte*>(c10::alloc_cpu(bytes + kHeader));
    const auto size = static_cast<std::int64_t>(bytes);
    std::memcpy(block, &size, sizeof size);
    count(size);
    void* data = block + kHeader;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

}  // namespace

void install_counting_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    // libtorch keeps a plain pointer for the life of the process.
    static CountingAllocator allocator;
    c10::SetCPUAllocator(&allocator, /*priority=*/1);
  });
}

AllocatedBytes allocated() {
  return {.current = current_bytes.load(std::memory_order_relaxed),
          .peak = peak_bytes.load(std::memory_order_relaxed)};
}

void reset_peak_allocated() {
  peak_bytes.store(current_bytes.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace stepscope::topologies
