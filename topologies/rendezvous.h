#pragma once

/// Purpose: who this process is in the job and where its peers meet: rank, world size and address,
/// from the environment variables of its launcher.
///
/// Usage:  Rendezvous rendezvous = rendezvous_from_environment();
///
/// Where RANK, WORLD_SIZE or LOCAL_RANK is set (torchrun, or by hand), those count, with
/// MASTER_ADDR, MASTER_PORT and, where present, LOCAL_WORLD_SIZE, TORCHELASTIC_USE_AGENT_STORE and
/// TORCHELASTIC_RESTART_COUNT. Otherwise Slurm's do (slurm_task.h), and MASTER_ADDR and MASTER_PORT
/// only override where the ranks meet.
///
/// Caveats: nothing is guessed: a missing variable is an Error naming it, and two that contradict
/// each other one naming both, before any connection is tried.

#include <cstdint>
#include <functional>
#include <string>

#include "topologies/host_address.h"
#include "topologies/slurm_task.h"

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
      0;                 ///< torchrun's restart count, so that a restarted job meets itself only
  std::string launcher;  ///< "torchrun", "slurm" or "environment": whose variables these were
};

/// The address of a node that Slurm names.
using NodeAddress = std::function<std::string(const std::string& node)>;

/// The process's own environment.
Environment process_environment();

/// Throws Error naming the variables that are missing, not a number, out of range, or in
/// contradiction.
Rendezvous rendezvous_from_environment(const Environment& environment = process_environment(),
                                       const NodeAddress& node_address = slurm_node_address);

}  // namespace stepscope::topologies
