#pragma once

/// Purpose: the real CUDA kernels of bitsandbytes 0.50.2, called through the C interface of the
/// wheel's libbitsandbytes_cuda13*.so: the subject `bitsandbytes` on CUDA.
///
/// Usage:
///     const BitsandbytesCuda library =
///     BitsandbytesCuda::from_site_packages(".venv/lib/.../site-packages");
///     library.step(Algorithm::AdamW, hyperparameters, shard, signed_codes, unsigned_codes);
///
/// Caveats, all of them the library's:
/// - it launches one kernel a tensor on the default stream, and does not synchronize (bitsandbytes'
///   Python code synchronizes the device after every parameter);
/// - it counts elements and steps in 32 bits; more are refused here, where it would wrap;
/// - an empty tensor makes it launch an empty grid, and any CUDA error makes it end the process, so
/// an
///   empty shard never reaches it;
/// - it is built with fast maths: its last bits are not those of kernels/bnb_cuda.h.

#include <array>
#include <filesystem>
#include <memory>
#include <string>

#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

class BitsandbytesCuda {
 public:
  /// Loads the library of the installed package, and before it the CUDA libraries that it needs
  /// from NVIDIA's packages beside it, where they are. Of several libraries for CUDA 13 it takes
  /// the one for the lowest version, which runs on every driver for CUDA 13. Throws Error in one
  /// line where the package, the library, one of its own libraries or a function is missing, and
  /// where the package's version is not the one whose C interface this is.
  static BitsandbytesCuda from_site_packages(const std::filesystem::path& site_packages);

  /// Loads `library`. Throws Error as above.
  explicit BitsandbytesCuda(std::filesystem::path library);

  const std::filesystem::path& library() const { return library_; }

  /// Of the package: "0.50.2", or empty where the library was named itself.
  const std::string& version() const { return version_; }

  /// Enqueues one step of one shard in device memory on the default stream; nothing where numel is
  /// 0. `signed_codes` and `unsigned_codes` are the two code tables (256 float32) in device memory;
  /// null is allowed for float32 state, and for the unsigned one with Lion. Throws Error for what
  /// kernels/validate.h refuses, a missing table, and numel or step beyond 2^31 - 1.
  void step(Algorithm algorithm, const Hyperparameters& hyperparameters, const ShardTensors& shard,
            const float* signed_codes, const float* unsigned_codes) const;

 private:
  using Function = void (*)();

  /// The function for an algorithm, a state format and a data type.
  Function& function(Algorithm algorithm, StateFormat format, DType dtype);
  Function function(Algorithm algorithm, StateFormat format, DType dtype) const;

  std::filesystem::path library_;
  std::string version_;
  std::shared_ptr<void> handle_;
  std::array<Function, 12> functions_{};
};

}  // namespace stepscope::kernels
