#pragma once

/// Purpose: Communicator whose tensor collectives and all_to_all are NCCL's, on the rank's GPU.
/// Barriers, numbers and texts go over the host's communicator (Gloo).
///
/// Usage:  through connect() (connect.h).
///
/// What a call guarantees: it returns when the device has done the work, and throws Error when NCCL
/// or CUDA report an error, when another rank of the job has reported a failure, or when the work
/// has not ended within the timeout; the Error names the ranks that do not answer. The NCCL
/// communicator is aborted then, so that no kernel of it keeps the device busy.
///
/// Caveats: NCCL is joined at the first collective on device memory, which is collective. Calls
/// block the host until the device is done, so nothing overlaps with them.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "topologies/communicator.h"
#include "topologies/nccl_api.h"

namespace stepscope::topologies {

class RendezvousStore;

/// What ranks know of each other beside NCCL (RendezvousStore).
struct PeerWatch {
  /// Reports a failure to all ranks, and says who of the given ranks of the job does not answer.
  std::function<std::string(std::span<const std::int64_t>)> missing_peers;
  /// Whether some rank of the job has reported a failure.
  std::function<bool()> failure_reported;
};

/// The watch that `store` keeps.
PeerWatch watch_of(const std::shared_ptr<const RendezvousStore>& store);

/// `host` joins the same ranks, in the same order. `timeout` limits each collective.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     std::shared_ptr<NcclApi> api, PeerWatch watch,
                                                     std::chrono::milliseconds timeout);

}  // namespace stepscope::topologies
