#pragma once

/// Purpose: which GPU a rank runs on, for the manifest of a run, and the one clear line where there
/// is none.
///
/// Usage: `const DeviceInfo device = device_info(local_rank);`
///
/// Caveats: `driver_version` is the highest CUDA version that the driver supports, not the driver's
/// own number.

#include <cstdint>
#include <string>

namespace stepscope::kernels::cuda {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;       ///< "NVIDIA H200"
  std::string uuid;       ///< "GPU-01234567-89ab-cdef-0123-456789abcdef", as nvidia-smi prints it
  int compute_major = 0;  ///< compute capability
  int compute_minor = 0;
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;  ///< total device memory
  std::int64_t l2_cache_bytes = 0;
  int driver_version = 0;   ///< 1000 * major + 10 * minor, for example 13000
  int runtime_version = 0;  ///< likewise, of the linked CUDA runtime
};

/// Devices this process may use. Throws Error "no CUDA device: ..." where there is none or no
/// driver.
int device_count();

/// Facts about device `ordinal`, counted from 0. Throws Error where it does not exist; `rank` names
/// the asking rank in the message, -1 leaves it out.
DeviceInfo device_info(int ordinal, std::int64_t rank = -1);

/// "13.0" for 13000.
std::string version_text(int version);

/// The UUID of 16 bytes in nvidia-smi's form.
std::string uuid_text(const unsigned char* bytes);

}  // namespace stepscope::kernels::cuda
