#pragma once

/// Purpose: the communicator of a job whose tensors are on a device: Gloo for the CPU, NCCL for
/// GPUs.
///
/// Usage:
///     const auto runtime = open_device(device, rendezvous.local_rank);
///     const auto communicator = connect(device, rendezvous, timeouts);

#include <memory>

#include "topologies/communicator.h"
#include "topologies/device_runtime.h"

namespace stepscope::topologies {

/// Meets the other ranks and connects to them. For Device::cuda the device must be open
/// (open_device), and NCCL is loaded here, so that a machine without it fails before anything is
/// measured. Throws Error, on every rank where one rank cannot load NCCL.
std::unique_ptr<Communicator> connect(Device device, const Rendezvous& rendezvous,
                                      const Timeouts& timeouts);

}  // namespace stepscope::topologies
