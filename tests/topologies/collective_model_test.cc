#include "topologies/collective_model.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace stepscope::topologies {
namespace {

constexpr LinkModel kLink = {.latency_ns = 1000, .bytes_per_s = 1'000'000'000};  // 1 us, 1 B/ns

TEST(CollectiveModel, HasTheHandComputedTimesOfFourRanks) {
  // 4 ranks, 3 calls, 1200 bytes: alpha 3 us a message of all calls, beta 1 ns a byte.
  const CollectiveTraffic four = {.ranks = 4, .calls = 3, .bytes = 1200};
  // 3 messages, 3 x 1200 bytes; a tree has 2 messages.
  EXPECT_EQ(predicted_ns(CollectiveKind::all_gather, Algorithm::ring, kLink, four), 9000 + 3600);
  EXPECT_EQ(predicted_ns(CollectiveKind::all_gather, Algorithm::tree, kLink, four), 6000 + 3600);
  // 3 messages, 3/4 of 1200 bytes.
  EXPECT_EQ(predicted_ns(CollectiveKind::reduce_scatter, Algorithm::ring, kLink, four), 9000 + 900);
  EXPECT_EQ(predicted_ns(CollectiveKind::reduce_scatter, Algorithm::tree, kLink, four), 6000 + 900);
  // Both of them, on the same bytes.
  EXPECT_EQ(predicted_ns(CollectiveKind::all_reduce, Algorithm::ring, kLink, four), 18000 + 1800);
  EXPECT_EQ(predicted_ns(CollectiveKind::all_reduce, Algorithm::tree, kLink, four), 12000 + 1800);
}

TEST(CollectiveModel, OfSixteenThousandRanksHasTheHandComputedTimes) {
  // Llama-3.1-405B in bf16 handed in as one all-gather: 49,537,598 bytes a rank.
  const LinkModel defaults;
  const CollectiveTraffic all = {.ranks = 16384, .calls = 1, .bytes = 49'537'598};
  // 16,383 x 20 us; 16,383 x 49,537,598 bytes = 811,574,468,034 bytes at 50 bytes a ns, rounded up.
  constexpr std::int64_t kTransfer = 16'231'489'361;
  EXPECT_EQ(predicted_ns(CollectiveKind::all_gather, Algorithm::ring, defaults, all),
            327'660'000 + kTransfer);
  // log2 of 16,384 is 14.
  EXPECT_EQ(predicted_ns(CollectiveKind::all_gather, Algorithm::tree, defaults, all),
            280'000 + kTransfer);
}

TEST(CollectiveModel, ATreeOfAnOddNumberOfRanksHasOneMoreRound) {
  const auto rounds = [](std::int64_t ranks) {
    return predicted_ns(CollectiveKind::all_gather, Algorithm::tree, kLink,
                        {.ranks = ranks, .calls = 1, .bytes = 0}) /
           1000;
  };
  EXPECT_EQ(rounds(2), 1);
  EXPECT_EQ(rounds(3), 2);
  EXPECT_EQ(rounds(4), 2);
  EXPECT_EQ(rounds(5), 3);
  EXPECT_EQ(rounds(8), 3);
  EXPECT_EQ(rounds(9), 4);
}

TEST(CollectiveModel, RoundsAPartOfANanosecondUp) {
  // 1 byte of a reduce-scatter of 3 ranks: 2/3 byte, one byte; 1 byte at 3 B/s: 333,333,333.3 ns.
  EXPECT_EQ(predicted_ns(CollectiveKind::reduce_scatter, Algorithm::ring,
                         {.latency_ns = 0, .bytes_per_s = 3}, {.ranks = 3, .calls = 1, .bytes = 1}),
            333'333'334);
}

TEST(CollectiveModel, AGroupOfOneSendsNothing) {
  for (const auto kind :
       {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_reduce}) {
    EXPECT_EQ(
        predicted_ns(kind, Algorithm::ring, kLink, {.ranks = 1, .calls = 9, .bytes = 1 << 30}), 0);
  }
}

TEST(CollectiveModel, WhatDoesNotFitOrMakesNoSenseIsRefused) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto time = [](const LinkModel& link, const CollectiveTraffic& calls) {
    return predicted_ns(CollectiveKind::all_reduce, Algorithm::ring, link, calls);
  };
  EXPECT_THROW(time(kLink, {.ranks = kMost, .calls = kMost, .bytes = 0}), Error);
  EXPECT_THROW(time(kLink, {.ranks = kMost, .calls = 0, .bytes = kMost}), Error);
  EXPECT_THROW(time({.latency_ns = kMost}, {.ranks = 2, .calls = kMost, .bytes = 0}), Error);
  EXPECT_THROW(time({.bytes_per_s = 1}, {.ranks = 2, .calls = 1, .bytes = kMost / 2}), Error);
  EXPECT_THROW(time({.bytes_per_s = 0}, {.ranks = 2, .calls = 1, .bytes = 1}), Error);
  EXPECT_THROW(time(kLink, {.ranks = 0, .calls = 1, .bytes = 1}), Error);
  EXPECT_THROW(time(kLink, {.ranks = 2, .calls = -1, .bytes = 1}), Error);
  EXPECT_THROW(time(kLink, {.ranks = 2, .calls = 1, .bytes = -1}), Error);
}

}  // namespace
}  // namespace stepscope::topologies
