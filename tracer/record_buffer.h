#pragma once

/// Purpose: where the threads of a process leave records while something is measured: memory taken
/// before, bounded, no lock and no allocation on the way; what does not fit is counted.
///
/// Usage:
///     RecordBuffer buffer;
///     buffer.start(64 << 20);
///     { const RecordBuffer::Writer writer(buffer);         // any thread
///       if (std::byte* room = writer.reserve(40)) fill(room); }
///     buffer.stop();
///     buffer.for_each_chunk([](std::uint64_t thread, std::span<const std::byte> records) { ... });
///
/// How it works: the memory is dealt out in chunks; a thread claims one, writes its records one
/// after the other and claims the next. Only claiming a chunk and entering touch what threads
/// share.
///
/// Caveats: start, stop and reading are for one thread at a time. A buffer must outlive every
/// thread that may still enter it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace stepscope::tracer {

class RecordBuffer {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

  RecordBuffer() = default;
  RecordBuffer(const RecordBuffer&) = delete;
  RecordBuffer& operator=(const RecordBuffer&) = delete;

  /// Forgets what is there and lets writers in. `bytes` are reserved, and become resident only as
  /// they are written; rounded down to whole chunks, at least one.
  void start(std::size_t bytes);

  /// Keeps writers out, and returns when the last one has left.
  void stop() noexcept;

  bool recording() const noexcept { return recording_.load(std::memory_order_relaxed); }

  /// Records that found no room since start().
  std::int64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

  /// A thread's stay in the buffer: as long as it lives, stop() waits. Not to be kept over calls
  /// of other code.
  class Writer {
   public:
    explicit Writer(RecordBuffer& buffer) noexcept;
    ~Writer() { buffer_.writers_.fetch_sub(1, std::memory_order_release); }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    /// Whether the buffer records; otherwise nothing may be written.
    explicit operator bool() const noexcept { return inside_; }

    /// Room for `bytes`, aligned to 8, in the order of the thread's calls; null where there is
    /// none, which is counted. Must be filled while the Writer lives.
    std::byte* reserve(std::size_t bytes) const noexcept;

   private:
    RecordBuffer& buffer_;
    bool inside_;
  };

  /// Which start() of which buffer this is: a record's address is valid as long as it stays the
  /// same. To be asked by a Writer.
  std::uint64_t epoch() const noexcept { return epoch_; }

  /// Calls `visit` for every chunk: the operating system's number of the thread that wrote it, and
  /// its records without gaps, each starting at a multiple of 8 bytes. After stop() only.
  void for_each_chunk(
      const std::function<void(std::uint64_t thread, std::span<std::byte> records)>& visit);

 private:
  struct Chunk {
    std::byte* memory;
    std::size_t used;
    std::uint64_t thread;
  };

  Chunk* claim() noexcept;

  std::unique_ptr<std::byte[]> memory_;
  std::unique_ptr<Chunk[]> chunks_;
  std::size_t chunk_count_ = 0;
  std::uint64_t epoch_ = 0;
  std::atomic<std::size_t> claimed_{0};
  std::atomic<std::int64_t> dropped_{0};
  std::atomic<std::int64_t> writers_{0};
  std::atomic<bool> recording_{false};
};

/// The operating system's number of the calling thread, as profilers show it.
std::uint64_t thread_number() noexcept;

/// Now, in nanoseconds of the clock that every record of this process uses (CLOCK_MONOTONIC).
std::int64_t trace_clock_ns() noexcept;

}  // namespace stepscope::tracer
