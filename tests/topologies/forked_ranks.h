#pragma once

/// Purpose: the ranks of a job as forked processes that meet over loopback.
///
/// Usage:
///     EXPECT_TRUE(on_ranks(3, [](Communicator& communicator) { return ...; }));
///
/// Caveats: the calling process must not have used threads of libtorch yet.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/topologies/free_port.h"
#include "topologies/communicator.h"
#include "topologies/rendezvous.h"

namespace stepscope::topologies {

/// A pipe that ends when the last process that holds its end for writing closes it or ends.
struct EndSignal {
  EndSignal() {
    if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  }
  void close_writer() { close(ends[1]); }
  void wait() const {
    char nothing = 0;
    while (read(ends[0], &nothing, 1) > 0) {
    }
  }
  std::array<int, 2> ends{};
};

/// When a rank whose body has returned ends: at once, or when every other one has returned or
/// ended as well, so that none is seen to leave while a peer still reads.
enum class Leave { at_once, together };

/// Runs `body` on `world_size` forked ranks, each with its own place to meet the others; true when
/// it returned true on all.
inline bool on_forked_ranks(std::int64_t world_size,
                            const std::function<bool(const Rendezvous&, const Timeouts&)>& body,
                            Leave leave = Leave::at_once) {
  Rendezvous rendezvous;
  rendezvous.world_size = rendezvous.local_world_size = world_size;
  rendezvous.master_addr = "127.0.0.1";
  rendezvous.master_port = free_port();
  Timeouts timeouts;
  timeouts.rendezvous = std::chrono::seconds(30);
  timeouts.collective = std::chrono::seconds(5);
  EndSignal all_done;
  std::vector<EndSignal> done;
  std::vector<pid_t> children;
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    done.emplace_back();
    const pid_t child = fork();
    if (child == 0) {
      all_done.close_writer();
      bool right = false;
      try {
        rendezvous.rank = rendezvous.local_rank = rank;
        right = body(rendezvous, timeouts);
        done.back().close_writer();
        if (leave == Leave::together) all_done.wait();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), error.what());
      }
      _exit(right ? 0 : 1);
    }
    done.back().close_writer();
    children.push_back(child);
  }
  for (const EndSignal& each : done) each.wait();
  all_done.close_writer();
  bool all = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    // A body may let ranks leave; none may be ended by a signal.
    EXPECT_TRUE(WIFEXITED(status)) << "a rank was ended by signal " << WTERMSIG(status);
    all = all && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  close(all_done.ends[0]);
  for (const EndSignal& each : done) close(each.ends[0]);
  return all;
}

/// The same with a Gloo group between the ranks, which every rank keeps until all have finished.
inline bool on_ranks(std::int64_t world_size, const std::function<bool(Communicator&)>& body) {
  return on_forked_ranks(
      world_size,
      [&](const Rendezvous& rendezvous, const Timeouts& timeouts) {
        static std::unique_ptr<Communicator> kept;
        kept = connect_gloo(rendezvous, timeouts);
        return body(*kept);
      },
      Leave::together);
}

}  // namespace stepscope::topologies
