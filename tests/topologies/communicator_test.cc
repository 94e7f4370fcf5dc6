#include "topologies/communicator.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>

namespace stepscope::topologies {
namespace {

std::uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  close(fd);
  return ntohs(address.sin_port);
}

/// Runs `body` on `world_size` forked ranks with a real Gloo group; true when it returned true on
/// all.
bool on_ranks(std::int64_t world_size, const std::function<bool(Communicator&)>& body) {
  Rendezvous rendezvous;
  rendezvous.world_size = rendezvous.local_world_size = world_size;
  rendezvous.master_addr = "127.0.0.1";
  rendezvous.master_port = free_port();
  Timeouts timeouts;
  timeouts.rendezvous = std::chrono::seconds(30);
  timeouts.collective = std::chrono::seconds(5);
  std::vector<pid_t> children;
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      bool right = false;
      try {
        rendezvous.rank = rendezvous.local_rank = rank;
        right = body(*connect_gloo(rendezvous, timeouts));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), error.what());
      }
      _exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  bool all = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    all = all && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return all;
}

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

TEST(Communicator, ManyBarriersInARowKeepTheRanksInStep) {
  EXPECT_TRUE(on_ranks(2, [](Communicator& communicator) {
    for (int i = 0; i < 200; ++i) communicator.barrier();
    return max_over_ranks(communicator, 7) == 7;
  }));
}

}  // namespace
}  // namespace stepscope::topologies
