#include "tracer/record_buffer.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace stepscope::tracer {
namespace {

/// Epochs are numbered through all buffers, so that a thread's claim on a chunk of one buffer is
/// never taken for one of another.
std::atomic<std::uint64_t> next_epoch{1};

struct Claim {
  std::uint64_t epoch = 0;
  void* chunk = nullptr;
};
thread_local Claim claim_of_this_thread;

}  // namespace

std::uint64_t thread_number() noexcept {
  thread_local const auto number = static_cast<std::uint64_t>(syscall(SYS_gettid));
  return number;
}

std::int64_t trace_clock_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void RecordBuffer::start(std::size_t bytes) {
  const std::size_t chunks = std::max<std::size_t>(1, bytes / kChunkBytes);
  if (chunks != chunk_count_) {
    memory_.reset(new std::byte[chunks * kChunkBytes]);
    chunks_ = std::make_unique<Chunk[]>(chunks);
    chunk_count_ = chunks;
  }
  claimed_.store(0, std::memory_order_relaxed);
  dropped_.store(0, std::memory_order_relaxed);
  epoch_ = next_epoch.fetch_add(1, std::memory_order_relaxed);
  recording_.store(true, std::memory_order_seq_cst);
}

// A writer counts itself before it looks whether the buffer records, and stop() looks at the count
// after it has closed the buffer: with both in one total order, either the writer sees it closed or
// stop() sees the writer.
void RecordBuffer::stop() noexcept {
  recording_.store(false, std::memory_order_seq_cst);
  while (writers_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
}

RecordBuffer::Writer::Writer(RecordBuffer& buffer) noexcept : buffer_(buffer) {
  buffer_.writers_.fetch_add(1, std::memory_order_seq_cst);
  inside_ = buffer_.recording_.load(std::memory_order_seq_cst);
}

RecordBuffer::Chunk* RecordBuffer::claim() noexcept {
  // Looked at first, so that the count cannot wrap however long a full buffer is written to.
  if (claimed_.load(std::memory_order_relaxed) >= chunk_count_) return nullptr;
  const std::size_t number = claimed_.fetch_add(1, std::memory_order_relaxed);
  if (number >= chunk_count_) return nullptr;
  chunks_[number] = {memory_.get() + number * kChunkBytes, 0, thread_number()};
  return &chunks_[number];
}

std::byte* RecordBuffer::Writer::reserve(std::size_t bytes) const noexcept {
  const std::size_t size = (bytes + 7) / 8 * 8;
  Claim& claim = claim_of_this_thread;
  auto* chunk = claim.epoch == buffer_.epoch_ ? static_cast<Chunk*>(claim.chunk) : nullptr;
  const bool fits_a_chunk = size <= kChunkBytes;
  if (fits_a_chunk && (chunk == nullptr || kChunkBytes - chunk->used < size)) {
    // A thread whose next chunk was refused goes on with its last one: a smaller record may fit.
    if (Chunk* next = buffer_.claim()) {
      chunk = next;
      claim = {buffer_.epoch_, chunk};
    }
  }
  if (!fits_a_chunk || chunk == nullptr || kChunkBytes - chunk->used < size) {
    buffer_.dropped_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  std::byte* room = chunk->memory + chunk->used;
  chunk->used += size;
  return room;
}

void RecordBuffer::for_each_chunk(
    const std::function<void(std::uint64_t thread, std::span<std::byte> records)>& visit) {
  const std::size_t used = std::min(claimed_.load(std::memory_order_relaxed), chunk_count_);
  for (std::size_t i = 0; i < used; ++i) {
    visit(chunks_[i].thread, {chunks_[i].memory, chunks_[i].used});
  }
}

}  // namespace stepscope::tracer
