#pragma once

/// Purpose: what differs between measuring on the CPU and on a GPU, behind one interface: waiting
/// for work, reading memory back, and the allocator's own numbers.
///
/// Usage:
///     auto runtime = open_device(Device::cuda, rendezvous.local_rank);
///     optimizer->step(); runtime->synchronize();
///
/// Caveats: open the device before the first tensor is made. The CUDA side is compiled and its
/// kernels are tested on the host; it has not run on a GPU yet.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace stepscope::topologies {

/// Where the tensors live.
enum class Device { cpu, cuda };

/// "cpu" or "cuda".
std::string_view device_name(Device device);

/// The inverse of device_name. Throws Error listing the names otherwise.
Device parse_device(std::string_view name);

/// Largest numbers of bytes since reset_peak_memory(), from the allocator of the tensors.
struct PeakMemory {
  std::int64_t allocated = 0;
  std::optional<std::int64_t> reserved;  ///< nothing on CPU, where memory is not cached
};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual Device device() const = 0;

  /// Returns when all work enqueued by this process is done. Throws Error when some of it failed.
  virtual void synchronize() = 0;

  /// Copies `bytes` from the device's memory to host memory.
  virtual void copy_to_host(void* destination, const void* source, std::int64_t bytes) = 0;

  /// Copies `bytes` from host memory to the device's.
  virtual void copy_to_device(void* destination, const void* source, std::int64_t bytes) = 0;

  virtual PeakMemory peak_memory() const = 0;
  virtual void reset_peak_memory() = 0;

  /// Free memory that this rank has for itself; nothing on CPU, where the ranks of a host share
  /// theirs.
  virtual std::optional<std::int64_t> available_bytes() const = 0;

  /// Name, identity, versions; an empty object on CPU.
  virtual nlohmann::json description() const = 0;
};

/// Throws Error when this build or this machine has no such device. `local_rank` chooses the GPU;
/// where that many `sharing_ranks` of this host may share its GPUs, in turn, otherwise each has its
/// own.
std::unique_ptr<DeviceRuntime> open_device(Device device, std::int64_t local_rank,
                                           std::int64_t sharing_ranks = 0);

}  // namespace stepscope::topologies
