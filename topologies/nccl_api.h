#pragma once

/// Purpose: the functions of NCCL that NcclCommunicator calls, and the question whether the GPU has
/// done what they enqueued: the seam behind which tests put a double, since NCCL needs GPUs.
///
/// Usage:
///     const int result = api.all_reduce(DType::fp32, Reduction::sum, data, numel, comm);
///     if (result != kNcclSuccess && result != kNcclInProgress) fail(api.error_text(result, comm));
///
/// Caveats: as in NCCL, functions return a result code at once, which may be kNcclInProgress, and
/// enqueue work on the device's default stream, where libtorch and the project's kernels work, too.

#include <array>
#include <cstdint>
#include <string>

#include "kernels/shard_tensors.h"
#include "topologies/communicator.h"

/// NCCL's own type of a communicator, which nobody but NCCL looks into.
struct ncclComm;

namespace stepscope::topologies {

// NCCL's numbers.
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;

/// What rank 0 of a group makes and its other ranks need in order to join.
struct NcclUniqueId {
  std::array<char, 128> bytes{};
};

class NcclApi {
 public:
  virtual ~NcclApi() = default;

  virtual int get_unique_id(NcclUniqueId& id) = 0;
  /// Begins to join the `ranks` of a group; `comm` is set at once.
  virtual int init(ncclComm*& comm, std::int64_t ranks, const NcclUniqueId& id,
                   std::int64_t rank) = 0;
  /// `result` becomes the state of what `comm` was asked for: success, in progress, or an error.
  virtual int async_error(ncclComm* comm, int& result) = 0;
  /// Begins to end: what was enqueued is completed, and destroy() may follow when it is.
  virtual int finalize(ncclComm* comm) = 0;
  virtual int destroy(ncclComm* comm) = 0;
  /// Ends `comm` and what it has under way, whatever the peers do.
  virtual int abort(ncclComm* comm) = 0;

  // Counts are of elements, as in Communicator.
  virtual int all_gather(kernels::DType dtype, const void* mine, std::int64_t numel, void* all,
                         ncclComm* comm) = 0;
  virtual int reduce_scatter(kernels::DType dtype, Reduction reduction, const void* all,
                             std::int64_t numel, void* mine, ncclComm* comm) = 0;
  virtual int all_reduce(kernels::DType dtype, Reduction reduction, void* data, std::int64_t numel,
                         ncclComm* comm) = 0;
  virtual int broadcast(kernels::DType dtype, std::int64_t root, void* data, std::int64_t numel,
                        ncclComm* comm) = 0;
  virtual int send(const void* data, std::int64_t bytes, std::int64_t peer, ncclComm* comm) = 0;
  virtual int receive(void* data, std::int64_t bytes, std::int64_t peer, ncclComm* comm) = 0;
  /// Sends and receives between these two are one piece of work.
  virtual int group_start() = 0;
  virtual int group_end() = 0;

  /// What `result` means; `comm` may be null.
  virtual std::string error_text(int result, ncclComm* comm) = 0;

  /// Marks the place in the stream that work enqueued so far ends at. Throws Error for a CUDA
  /// error.
  virtual void mark() = 0;
  /// Whether the device has got to the mark. Throws Error for a CUDA error.
  virtual bool reached_mark() = 0;
};

}  // namespace stepscope::topologies
