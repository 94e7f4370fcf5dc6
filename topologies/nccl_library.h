#pragma once

/// Purpose: NcclApi over NVIDIA's libnccl, loaded at run time, so that a run without GPUs needs
/// neither it nor a driver.
///
/// Usage:
///     auto api = load_nccl();   // after open_device(Device::cuda, ...)
///
/// Caveats: compiled against nccl.h of the libtorch wheel and loaded here, never run on a GPU yet.
/// Communicators are made non-blocking, so that no call of NCCL waits for a peer.

#include <memory>

#include "topologies/nccl_api.h"

namespace stepscope::topologies {

/// The library that libtorch has loaded, else the system's. Throws Error where there is none, it
/// lacks a function, or its version is not that of the header's major version. Work is marked on
/// the default stream of the device that is current in the calling thread.
std::shared_ptr<NcclApi> load_nccl();

}  // namespace stepscope::topologies
