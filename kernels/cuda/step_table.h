#pragma once

/// Purpose: what one launch of the CUDA back end reads: a table of a rank's tensors, the scalars of
/// each tensor's next step, and how the 256-element blocks of all of them are dealt out.
///
/// Usage: build_step_table(algorithm, shards) on the host; kernels/cuda/cuda_step.h uploads it.
///
/// Caveats: plain data with a fixed layout, shared by host, device and tests; nothing here needs
/// CUDA.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/bnb_cuda.h"
#include "kernels/shard_tensors.h"

namespace stepscope::kernels::cuda {

/// Threads of a thread block. One warp steps one 256-element block at a time, 8 elements a lane.
inline constexpr int kThreads = 384;
inline constexpr int kWarps = kThreads / 32;

/// One tensor that is not empty. Blocks are numbered through all tensors of the table.
struct TensorEntry {
  void* param;
  const void* grad;
  void* state1;
  void* state2;
  float* absmax1;
  float* absmax2;
  std::int64_t numel;
  std::int64_t first_block;  ///< of this tensor
  std::int64_t end_block;    ///< first block of the next tensor
  DType dtype;
  StateFormat format;
  bool vectorizable;  ///< every pointer is aligned for 16-byte (codes: 4 or 8-byte) accesses
  std::uint8_t unused[5];
};
static_assert(sizeof(TensorEntry) == 80);

/// The step a tensor takes next, and what follows from its number. The device advances it.
struct TensorStep {
  std::int64_t step;
  bnb_cuda::StepScalars scalars;
};
static_assert(sizeof(TensorStep) == 48);

/// Everything a launch takes, by value. Each thread block steps `blocks_per_thread_block` blocks in
/// a row, the first `extra_blocks` of them one more.
struct StepArguments {
  const TensorEntry* tensors;
  TensorStep* steps;
  const bnb_cuda::RoundedHyperparameters* hyperparameters;
  std::uint32_t* finished;  ///< thread blocks that are done; 0 between launches
  std::int64_t blocks_per_thread_block;
  std::int64_t extra_blocks;
  std::int32_t tensor_count;
  std::int32_t unused;
};
static_assert(sizeof(StepArguments) == 56);

struct StepTable {
  std::vector<TensorEntry> tensors;
  std::vector<TensorStep> steps;  ///< one a tensor; only `step` is filled in
  std::int64_t blocks = 0;        ///< of all tensors
};

/// Leaves out empty shards. Only addresses are looked at, so they may be the device's. Throws Error
/// for what kernels/validate.h refuses, and for tensors of two shards that overlap in memory.
StepTable build_step_table(Algorithm algorithm, std::span<const ShardTensors> shards);

/// `blocks_per_thread_block` and `extra_blocks` for a grid of `thread_blocks`; pointers are left
/// null.
StepArguments deal_out(const StepTable& table, std::int64_t thread_blocks);

/// Thread blocks worth launching where `resident` fit on the device at once.
std::int64_t grid_size(const StepTable& table, std::int64_t resident);

}  // namespace stepscope::kernels::cuda
