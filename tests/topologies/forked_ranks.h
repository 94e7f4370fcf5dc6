#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <vector>

#include "topologies/communicator.h"
#include "topologies/rendezvous.h"

namespace stepscope::topologies {

inline std::uint16_t free_port() {
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

/// Runs `body` on `world_size` forked ranks, each with its own place to meet the others; true when
/// it returned true on all.
inline bool on_forked_ranks(std::int64_t world_size,
                            const std::function<bool(const Rendezvous&, const Timeouts&)>& body) {
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
        right = body(rendezvous, timeouts);
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
    // A body may let ranks leave; none may be ended by a signal.
    EXPECT_TRUE(WIFEXITED(status)) << "a rank was ended by signal " << WTERMSIG(status);
    all = all && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return all;
}

}  // namespace stepscope::topologies
