#pragma once

/// Purpose: the clocks of a GPU, and what holds them down, from NVIDIA's management library, to be
/// read beside each sample.
///
/// Usage:
///     const Nvml nvml;                                     // libnvidia-ml.so.1, of the driver
///     const NvmlDevice gpu = nvml.device("00000000:4E:00.0");
///     const ClockReading now = gpu.read();
///
/// Caveats: a reading is of one moment, and after a sample, not during it: a clock that falls for
/// less than a sample is not seen. Of a MIG slice the clocks are those of the whole GPU. The
/// library belongs to the driver, so where there is no driver there is none. Not yet run against
/// the real one.

#include <memory>
#include <string>
#include <utility>

#include "bench/cuda/clock_reading.h"

namespace stepscope::bench {

class NvmlDevice;

class Nvml {
 public:
  /// Loads and starts the library. Throws Error in one line where it, one of its functions, or a
  /// driver is missing.
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");

  /// The GPU at a PCI bus id, as cudaDeviceGetPCIBusId writes it. Throws Error where there is none.
  NvmlDevice device(const std::string& pci_bus_id) const;

  /// The driver's own version, such as "580.95.05".
  std::string driver_version() const;

 private:
  friend class NvmlDevice;
  struct Library;
  std::shared_ptr<const Library> library_;
};

class NvmlDevice {
 public:
  /// Throws Error naming the call that failed.
  ClockReading read() const;

 private:
  friend class Nvml;
  NvmlDevice(std::shared_ptr<const Nvml::Library> library, void* handle)
      : library_(std::move(library)), handle_(handle) {}

  std::shared_ptr<const Nvml::Library> library_;
  void* handle_;
};

}  // namespace stepscope::bench
