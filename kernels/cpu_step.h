#pragma once

/// Purpose: the CPU back end: one optimizer step over all shards of a rank, with SIMD and threads.
///
/// Usage:
///     ThreadPool pool(2);
///     step_cpu(pool, Algorithm::AdamW, hyperparameters, shards);
///
/// Caveats: the arithmetic is `bnb-cpu` (kernels/bnb_cpu.h), bit for bit the same for every
/// instruction set, thread count, alignment and split of the work. Nothing is allocated in a step.
/// NaN payloads are not specified.

#include <span>
#include <string>
#include <vector>

#include "kernels/shard_tensors.h"
#include "kernels/thread_pool.h"

namespace stepscope::kernels {

/// Updates every shard in place. Blocks of 256 elements are handed to the threads in small runs
/// across all shards, so shards of very different sizes balance. Throws Error for what validate()
/// refuses and for shards that overlap (kernels/shard_overlap.h), before anything is changed.
void step_cpu(ThreadPool& pool, Algorithm algorithm, const Hyperparameters& hyperparameters,
              std::span<const ShardTensors> shards);

/// The instruction set that step_cpu uses now: "AVX-512 VBMI", "AVX2" or "baseline".
std::string cpu_step_target();

/// Those that this processor supports, best first; "baseline" is always the last.
std::vector<std::string> cpu_step_targets();

/// Makes step_cpu use `target` from now on, in this process; empty: the best again. For tests and
/// comparisons; not while a step runs. Throws Error when this processor has no such target.
void force_cpu_step_target(const std::string& target);

}  // namespace stepscope::kernels
