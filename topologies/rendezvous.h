#pragma once

/// Purpose: who this process is in the job and where its peers meet: rank, world size and address,
/// from the environment variables that torchrun sets.
///
/// Usage:  Rendezvous rendezvous = rendezvous_from_environment();
///
/// Caveats: reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, and, where present,
/// LOCAL_WORLD_SIZE, TORCHELASTIC_USE_AGENT_STORE and TORCHELASTIC_RESTART_COUNT. Nothing is
/// guessed: a missing or contradictory variable is an Error naming it, before any connection is
/// tried.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace stepscope::topologies {

struct Rendezvous {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;
  std::int64_t local_world_size = 1;  ///< ranks on this host; world_size where it is not told
  std::string master_addr;            ///< host name or address, IPv6 without brackets
  std::uint16_t master_port = 0;
  bool agent_store = false;  ///< torchrun's agent already serves the store on master_port
  std::int64_t restart =
      0;  ///< torchrun's restart count, so that a restarted job meets itself only
};

/// Looks a variable up; std::nullopt when it is not set. Tests hand in their own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The process's own environment.
Environment process_environment();

/// Throws Error naming the variable that is missing, not a number, out of range, or in
/// contradiction.
Rendezvous rendezvous_from_environment(const Environment& environment = process_environment());

}  // namespace stepscope::topologies
