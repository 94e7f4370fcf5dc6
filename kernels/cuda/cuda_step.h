#pragma once

/// Purpose: the CUDA back end: one optimizer step of all tensors of a rank, in the arithmetic
/// `bnb-cuda`, in a single launch.
///
/// Usage:
///     CudaStep step(Algorithm::AdamW, hyperparameters, shards, rank);   // once, allocates
///     step.enqueue(stream);                                            // every step
///     step.set_hyperparameters(hyperparameters, stream);               // when the schedule
///     changes them
///
/// Caveats:
/// - pointers are to memory of the device that is current, and must stay valid; the table of
/// tensors is
///   uploaded once. A gradient that moves needs a new CudaStep.
/// - enqueue() launches one kernel on the caller's stream, or none where all shards are empty. It
/// does
///   not synchronize, allocate or copy, so it can be captured in a CUDA graph.
/// - step counts live on the device. Each launch raises them, a replayed graph included: the first
///   launch is step `ShardTensors::step` of each tensor, and what the host holds is not read again.
///   Hyperparameters live there too, so a change reaches graphs captured before it.
/// - launches of one CudaStep must not overlap: use one stream, or order the streams with events.
/// - after construction an error of the kernel itself shows at the caller's next synchronization.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/shard_tensors.h"

namespace stepscope::kernels::cuda {

class CudaStep {
 public:
  /// Checks the shards (Error for what kernels/validate.h refuses, for overlaps, and for any CUDA
  /// error, naming `rank` unless it is -1), uploads the table and waits for the upload.
  CudaStep(Algorithm algorithm, const Hyperparameters& hyperparameters,
           std::span<const ShardTensors> shards, std::int64_t rank);
  ~CudaStep();
  CudaStep(CudaStep&&) noexcept;
  CudaStep& operator=(CudaStep&&) noexcept;

  /// Launches the next step of every tensor on `stream`. Throws Error where the launch is refused.
  void enqueue(cudaStream_t stream);

  /// From the next launch on `stream` on, steps use `hyperparameters`. Launches one small kernel.
  void set_hyperparameters(const Hyperparameters& hyperparameters, cudaStream_t stream);

  /// Kernels that one enqueue() launches: 1, or 0 where every shard is empty.
  int launches_per_step() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stepscope::kernels::cuda
