#include "topologies/communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/topologies/forked_ranks.h"
#include "tests/topologies/free_port.h"

namespace stepscope::topologies {
namespace {

TEST(Communicator, GathersNumbersInRankOrder) {
  EXPECT_TRUE(on_ranks(3, [](Communicator& communicator) {
    const std::int64_t mine[] = {communicator.rank(), 10 * communicator.rank()};
    return communicator.all_gather(mine) == std::vector<std::int64_t>{0, 0, 1, 10, 2, 20};
  }));
}

TEST(Communicator, GathersTextsOfDifferentLengthsEmptyOnesIncluded) {
  EXPECT_TRUE(on_ranks(3, [](Communicator& communicator) {
    const std::string texts[] = {"", "a text that is longer than eight bytes", "short"};
    const auto all = communicator.all_gather_text(texts[communicator.rank()]);
    return all == std::vector<std::string>{texts[0], texts[1], texts[2]};
  }));
}

TEST(Communicator, AllToAllHandsPartsOfAnySizeToTheRightRank) {
  EXPECT_TRUE(on_ranks(3, [](Communicator& communicator) {
    // Rank s sends s + 2 r bytes, all of them 10 s + r, to rank r; rank 0 sends itself nothing.
    const auto me = communicator.rank();
    std::vector<std::byte> send;
    std::vector<std::int64_t> send_bytes, receive_bytes;
    std::vector<std::byte> expected;
    for (std::int64_t peer = 0; peer < 3; ++peer) {
      send_bytes.push_back(me + 2 * peer);
      send.insert(send.end(), static_cast<std::size_t>(me + 2 * peer), std::byte(10 * me + peer));
      receive_bytes.push_back(peer + 2 * me);
      expected.insert(expected.end(), static_cast<std::size_t>(peer + 2 * me),
                      std::byte(10 * peer + me));
    }
    std::vector<std::byte> receive(expected.size());
    communicator.all_to_all(send, send_bytes, receive, receive_bytes);
    return receive == expected;
  }));
}

TEST(Communicator, AllToAllOfNothingIsStillACollective) {
  EXPECT_TRUE(on_ranks(2, [](Communicator& communicator) {
    const std::vector<std::int64_t> none(2);
    communicator.all_to_all({}, none, {}, none);
    return max_over_ranks(communicator, 1) == 1;
  }));
}

TEST(Communicator, AFailureOnOneRankIsThrownOnAllWithThatRanksWords) {
  EXPECT_TRUE(on_ranks(3, [](Communicator& communicator) {
    try {
      together(communicator, [&] {
        if (communicator.rank() > 0) {
          throw Error("rank " + std::to_string(communicator.rank()) + " is out of luck",
                      "try again", {.parameter = "wte", .file = "state.bin", .line = 4});
        }
      });
    } catch (const Error& error) {
      // The ranks are still in step, so that the next collective works.
      return std::string(error.what()) ==
                 "rank 1: state.bin:4: parameter wte: rank 1 is out of luck; try again" &&
             max_over_ranks(communicator, communicator.rank()) == 2;
    }
    return false;
  }));
}

TEST(Communicator, NothingIsThrownWhereNothingFailed) {
  EXPECT_TRUE(on_ranks(2, [](Communicator& communicator) {
    return !first_failure(communicator, [] {}).has_value();
  }));
}

TEST(Communicator, RanksThatDisagreeLearnWhichLineDiffers) {
  EXPECT_TRUE(on_ranks(3, [](Communicator& communicator) {
    require_same(communicator, "steps=5\nmodel=gpt2\n");
    try {
      require_same(communicator, communicator.rank() == 2 ? "steps=5\nmodel=tiny\nmore=1\n"
                                                          : "steps=5\nmodel=gpt2\n");
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.find("\"model=gpt2\" and rank 2 has \"model=tiny\"") != std::string::npos;
    }
    return false;
  }));
}

TEST(Communicator, ADeadPeerIsAnErrorWithinTheTimeout) {
  // Rank 1 leaves without a word; the others must not wait for ever.
  EXPECT_FALSE(on_ranks(3, [](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 1) _exit(0);
    communicator.barrier();
    return true;
  }));
}

/// `values` in the bits of `dtype`; they must be exact in bf16.
std::vector<std::byte> encoded(kernels::DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  for (const float value : values) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (dtype == kernels::DType::bf16) bits >>= 16;
    if (dtype == kernels::DType::fp16) {
      const std::uint32_t exponent = (bits >> 23) & 0xff;
      const std::uint32_t sign = (bits >> 16) & 0x8000;
      bits = exponent == 0 ? 0 : sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff);
    }
    const auto* first = reinterpret_cast<const std::byte*>(&bits);
    bytes.insert(bytes.end(), first, first + kernels::element_bytes(dtype));
  }
  return bytes;
}

constexpr kernels::DType kTypes[] = {kernels::DType::fp32, kernels::DType::bf16,
                                     kernels::DType::fp16};

TEST(Communicator, AllGatherIntoLaysTheRanksElementsOneAfterAnother) {
  EXPECT_TRUE(on_ranks(3, [](Communicator& communicator) {
    return std::all_of(std::begin(kTypes), std::end(kTypes), [&](kernels::DType dtype) {
      const auto me = static_cast<float>(communicator.rank());
      const auto mine = encoded(dtype, {me, 10 * me + 1});
      std::vector<std::byte> all(3 * mine.size());
      communicator.all_gather_into(dtype, mine.data(), 2, all.data());
      return all == encoded(dtype, {0, 1, 1, 11, 2, 21});
    });
  }));
}

TEST(Communicator, ReductionsAddOrAverageInTheElementsOwnType) {
  EXPECT_TRUE(on_ranks(2, [](Communicator& communicator) {
    return std::all_of(std::begin(kTypes), std::end(kTypes), [&](kernels::DType dtype) {
      const auto me = static_cast<float>(communicator.rank());
      const auto mine = encoded(dtype, {me, 10 * me, 2 + me, 3});
      std::vector<std::byte> part(mine.size() / 2);
      communicator.reduce_scatter(dtype, Reduction::sum, mine.data(), 2, part.data());
      const std::vector<float> sums = {1, 10, 5, 6};
      const bool first = communicator.rank() == 0;
      if (part != encoded(dtype, first ? std::vector<float>{1, 10} : std::vector<float>{5, 6})) {
        return false;
      }
      communicator.reduce_scatter(dtype, Reduction::mean, mine.data(), 2, part.data());
      if (part != encoded(dtype, first ? std::vector<float>{0.5, 5} : std::vector<float>{2.5, 3})) {
        return false;
      }
      auto all = mine;
      communicator.all_reduce(dtype, Reduction::sum, all.data(), 4);
      if (all != encoded(dtype, sums)) return false;
      all = mine;
      communicator.all_reduce(dtype, Reduction::mean, all.data(), 4);
      return all == encoded(dtype, {0.5, 5, 2.5, 3});
    });
  }));
}

TEST(Communicator, BroadcastOverwritesWithTheRootsElements) {
  EXPECT_TRUE(on_ranks(3, [](Communicator& communicator) {
    const auto me = static_cast<float>(communicator.rank());
    auto data = encoded(kernels::DType::bf16, {me, me + 1, me + 2});
    communicator.broadcast(kernels::DType::bf16, 1, data.data(), 3);
    return data == encoded(kernels::DType::bf16, {1, 2, 3});
  }));
}

TEST(Communicator, CollectivesOfNothingReturn) {
  EXPECT_TRUE(on_ranks(2, [](Communicator& communicator) {
    communicator.all_gather_into(kernels::DType::fp32, nullptr, 0, nullptr);
    communicator.reduce_scatter(kernels::DType::fp32, Reduction::mean, nullptr, 0, nullptr);
    communicator.all_reduce(kernels::DType::fp32, Reduction::mean, nullptr, 0);
    communicator.broadcast(kernels::DType::fp32, 0, nullptr, 0);
    return max_over_ranks(communicator, communicator.rank()) == 1;
  }));
}

TEST(Communicator, ASplitJoinsTheRanksOfOneGroupInTheirOrder) {
  EXPECT_TRUE(on_ranks(4, [](Communicator& communicator) {
    const auto rank = communicator.rank();
    const auto rows = communicator.split(rank / 2);
    const auto columns = communicator.split(rank % 2);
    const auto row = rows->all_gather(std::span(&rank, 1));
    const auto column = columns->all_gather(std::span(&rank, 1));
    // A group of a group, and a group of one.
    const auto alone = rows->split(rank);
    return row == std::vector<std::int64_t>{rank - rank % 2, rank - rank % 2 + 1} &&
           column == std::vector<std::int64_t>{rank % 2, rank % 2 + 2} &&
           rows->rank() == rank % 2 && columns->rank() == rank / 2 && alone->world_size() == 1 &&
           max_over_ranks(*alone, rank) == rank;
  }));
}

TEST(Communicator, ADeadPeerIsNamedByEveryCollectiveOfItsGroup) {
  using Call = std::function<void(Communicator&)>;
  static std::byte data[16];
  const Call calls[] = {
      [](Communicator& c) { c.all_gather_into(kernels::DType::bf16, data, 1, data + 4); },
      [](Communicator& c) {
        c.reduce_scatter(kernels::DType::bf16, Reduction::mean, data, 1, data + 8);
      },
      [](Communicator& c) { c.all_reduce(kernels::DType::bf16, Reduction::sum, data, 2); },
      [](Communicator& c) { c.broadcast(kernels::DType::bf16, 1, data, 2); }};
  for (const Call& call : calls) {
    // Ranks 0 and 2 are a group, in which 2 has number 1; it leaves without a word.
    EXPECT_TRUE(on_ranks(4, [&](Communicator& communicator) {
      const auto group = communicator.split(communicator.rank() % 2);
      communicator.barrier();
      if (communicator.rank() == 2) _exit(0);
      try {
        call(*group);
      } catch (const Error& error) {
        return communicator.rank() == 0 &&
               std::string(error.what()).find("no answer from peer rank 2 ") != std::string::npos;
      }
      return communicator.rank() % 2 == 1;
    }));
  }
}

TEST(Communicator, AFailureInAnotherGroupIsTracedToTheRankThatDied) {
  // Rank 0 shares a group with 1 only, which leaves since 3 died.
  EXPECT_TRUE(on_ranks(4, [](Communicator& communicator) {
    const auto rank = communicator.rank();
    const auto rows = communicator.split(rank / 2);
    const auto columns = communicator.split(rank % 2);
    communicator.barrier();
    if (rank == 3) _exit(0);
    if (rank == 2) return true;
    try {
      if (rank == 1) columns->barrier();
      if (rank == 0) rows->barrier();
    } catch (const Error& error) {
      return std::string(error.what()).find("no answer from peer rank 3 ") != std::string::npos;
    }
    return false;
  }));
}

TEST(Communicator, ManyBarriersInARowKeepTheRanksInStep) {
  EXPECT_TRUE(on_ranks(2, [](Communicator& communicator) {
    for (int i = 0; i < 200; ++i) communicator.barrier();
    return max_over_ranks(communicator, 7) == 7;
  }));
}

TEST(FreePort, IsNeverOneThatTheKernelMayGiveAway) {
  const PortRange ephemeral = ephemeral_ports();
  ASSERT_LT(ephemeral.first, ephemeral.last);
  for (int i = 0; i < 50; ++i) {
    const int port = free_port();
    EXPECT_TRUE(port < ephemeral.first || port > ephemeral.last) << port;
  }
}

}  // namespace
}  // namespace stepscope::topologies
