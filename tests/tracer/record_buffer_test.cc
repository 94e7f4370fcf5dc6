#include "tracer/record_buffer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <vector>

namespace stepscope::tracer {
namespace {

/// What a test writes: which thread's which record, and a filler that shows a torn one.
struct Mark {
  std::uint64_t thread;
  std::uint64_t number;
  std::uint64_t sum;
};

bool write(RecordBuffer& buffer, std::uint64_t thread, std::uint64_t number) {
  const RecordBuffer::Writer writer(buffer);
  if (!writer) return false;
  std::byte* room = writer.reserve(sizeof(Mark));
  if (room == nullptr) return false;
  const Mark mark{thread, number, thread + number};
  std::memcpy(room, &mark, sizeof mark);
  return true;
}

std::vector<Mark> read(RecordBuffer& buffer) {
  std::vector<Mark> marks;
  buffer.for_each_chunk([&](std::uint64_t, std::span<std::byte> records) {
    for (; !records.empty(); records = records.subspan(sizeof(Mark))) {
      Mark mark{};
      std::memcpy(&mark, records.data(), sizeof mark);
      marks.push_back(mark);
    }
  });
  return marks;
}

TEST(RecordBuffer, EveryThreadsRecordsComeOutWholeAndInItsOrder) {
  RecordBuffer buffer;
  buffer.start(16 * RecordBuffer::kChunkBytes);
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEach = 60'000;  // more than one chunk a thread
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&buffer, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) write(buffer, t, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  buffer.stop();

  std::map<std::uint64_t, std::uint64_t> next;
  for (const Mark& mark : read(buffer)) {
    ASSERT_EQ(mark.sum, mark.thread + mark.number);
    ASSERT_EQ(mark.number, next[mark.thread]++);
  }
  ASSERT_EQ(next.size(), kThreads);
  for (const auto& [thread, count] : next) EXPECT_EQ(count, kEach) << thread;
  EXPECT_EQ(buffer.dropped(), 0);
}

TEST(RecordBuffer, WhatFindsNoRoomIsCountedAndNothingElseIsLost) {
  RecordBuffer buffer;
  buffer.start(1);  // one chunk
  const std::uint64_t asked = 2 * RecordBuffer::kChunkBytes / sizeof(Mark);
  std::uint64_t written = 0;
  for (std::uint64_t i = 0; i < asked; ++i) written += write(buffer, 0, i) ? 1 : 0;
  buffer.stop();
  EXPECT_EQ(written, RecordBuffer::kChunkBytes / sizeof(Mark));
  EXPECT_EQ(static_cast<std::uint64_t>(buffer.dropped()), asked - written);
  EXPECT_EQ(read(buffer).size(), written);
}

TEST(RecordBuffer, ARecordLargerThanAChunkIsCountedAsDropped) {
  RecordBuffer buffer;
  buffer.start(4 * RecordBuffer::kChunkBytes);
  {
    const RecordBuffer::Writer writer(buffer);
    EXPECT_EQ(writer.reserve(RecordBuffer::kChunkBytes + 1), nullptr);
    EXPECT_NE(writer.reserve(RecordBuffer::kChunkBytes), nullptr);
  }
  buffer.stop();
  EXPECT_EQ(buffer.dropped(), 1);
}

TEST(RecordBuffer, StopWaitsForWritersAndKeepsNewOnesOut) {
  RecordBuffer buffer;
  for (int round = 0; round < 50; ++round) {
    buffer.start(4 * RecordBuffer::kChunkBytes);
    std::atomic<bool> end{false};
    std::atomic<std::uint64_t> written{0};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t i = 0; !end.load(); ++i) written += write(buffer, t, i) ? 1 : 0;
      });
    }
    while (written.load() < 100) std::this_thread::yield();
    buffer.stop();
    // Read while the threads still try to write: under ThreadSanitizer a late writer is a race.
    const std::size_t read_now = read(buffer).size();
    end = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(read_now, written.load());
    EXPECT_FALSE(write(buffer, 9, 0));
  }
}

TEST(RecordBuffer, AThreadsClaimEndsWithTheRecording) {
  RecordBuffer first;
  RecordBuffer second;
  first.start(RecordBuffer::kChunkBytes);
  write(first, 1, 0);
  second.start(RecordBuffer::kChunkBytes);
  write(second, 2, 0);
  first.stop();
  second.stop();
  ASSERT_EQ(read(first).size(), 1U);
  ASSERT_EQ(read(second).size(), 1U);
  EXPECT_EQ(read(second).front().thread, 2U);

  const std::uint64_t before = first.epoch();
  first.start(RecordBuffer::kChunkBytes);
  EXPECT_NE(first.epoch(), before);
  first.stop();
  EXPECT_TRUE(read(first).empty());
}

TEST(RecordBuffer, ChunksNameTheOperatingSystemsThread) {
  RecordBuffer buffer;
  buffer.start(4 * RecordBuffer::kChunkBytes);
  std::set<std::uint64_t> expected;
  std::thread([&] {
    expected.insert(thread_number());
    write(buffer, 0, 0);
  }).join();
  expected.insert(thread_number());
  write(buffer, 1, 0);
  buffer.stop();
  std::set<std::uint64_t> seen;
  buffer.for_each_chunk([&](std::uint64_t thread, std::span<std::byte>) { seen.insert(thread); });
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(seen.size(), 2U);
}

}  // namespace
}  // namespace stepscope::tracer
