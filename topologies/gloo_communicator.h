#pragma once

/// Purpose: the two halves of connect_gloo (communicator.h), for a communicator that needs the
/// store, too.
///
/// Usage:
///     auto store = meet_for_gloo(rendezvous, timeouts);
///     auto host = connect_gloo(store, timeouts);
///
/// Caveats: includes libtorch; for the implementations of Communicator only.

#include <memory>

#include "topologies/communicator.h"
#include "topologies/rendezvous_store.h"

namespace stepscope::topologies {

/// Checks the network interface that is asked for, and meets the other ranks. Throws Error.
std::shared_ptr<const RendezvousStore> meet_for_gloo(const Rendezvous& rendezvous,
                                                     const Timeouts& timeouts);

/// Connects the ranks of `store`. Throws Error.
std::unique_ptr<Communicator> connect_gloo(const std::shared_ptr<const RendezvousStore>& store,
                                           const Timeouts& timeouts);

}  // namespace stepscope::topologies
