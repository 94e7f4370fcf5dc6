#include "kernels/cpu_step.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/bnb_cpu.h"
#include "kernels/shard_overlap.h"
#include "kernels/simd_blocks.h"
#include "kernels/validate.h"

namespace stepscope::kernels {
namespace {

// A run of blocks is what a thread takes at a time: long enough that taking it costs nothing and
// the hardware prefetcher gets going, short enough that threads finish together.
constexpr std::int64_t kMinRun = 16;
constexpr std::int64_t kMaxRun = 256;
constexpr std::int64_t kRunsPerThread = 16;

/// Walks the blocks of all shards as one sequence; positions may only grow.
class Cursor {
 public:
  Cursor(Algorithm algorithm, const Hyperparameters& hyperparameters,
         std::span<const ShardTensors> shards)
      : algorithm_(algorithm), hyperparameters_(hyperparameters), shards_(shards) {}

  /// Steps the blocks [begin, end) of the sequence.
  void step(StepBlocks step_blocks, std::int64_t begin, std::int64_t end) noexcept {
    while (begin < end) {
      const ShardTensors& shard = shards_[index_];
      const std::int64_t blocks = block_count(shard.numel);
      if (begin >= first_block_ + blocks) {
        first_block_ += blocks;
        ++index_;
        ready_ = false;
        continue;
      }
      if (!ready_) {
        coefficients_ = coefficients_of(algorithm_, hyperparameters_, shard.format, shard.step);
        ready_ = true;
      }
      const std::int64_t until = std::min(end, first_block_ + blocks);
      step_blocks(algorithm_, coefficients_, shard, begin - first_block_, until - first_block_);
      begin = until;
    }
  }

 private:
  Algorithm algorithm_;
  const Hyperparameters& hyperparameters_;
  std::span<const ShardTensors> shards_;
  std::size_t index_ = 0;
  std::int64_t first_block_ = 0;  // of shards_[index_], in the sequence
  Coefficients coefficients_;
  bool ready_ = false;  // coefficients_ are those of shards_[index_]
};

}  // namespace

void step_cpu(ThreadPool& pool, Algorithm algorithm, const Hyperparameters& hyperparameters,
              std::span<const ShardTensors> shards) {
  std::int64_t total = 0;
  for (const ShardTensors& shard : shards) {
    validate(algorithm, hyperparameters, shard);
    total += block_count(shard.numel);
  }
  if (shards.size() > 1) {
    thread_local OverlapCheck check;  // kept: a step allocates nothing
    check.refuse_overlaps(shards);
  }
  const StepBlocks step_blocks = simd_step_blocks();
  if (pool.size() == 1 || total <= kMinRun) {
    Cursor(algorithm, hyperparameters, shards).step(step_blocks, 0, total);
    return;
  }
  const std::int64_t run = std::clamp(total / (pool.size() * kRunsPerThread), kMinRun, kMaxRun);
  std::atomic<std::int64_t> next{0};
  pool.run([&](int) noexcept {
    Cursor cursor(algorithm, hyperparameters, shards);
    for (;;) {
      const std::int64_t begin = next.fetch_add(run, std::memory_order_relaxed);
      if (begin >= total) return;
      cursor.step(step_blocks, begin, std::min(begin + run, total));
    }
  });
}

}  // namespace stepscope::kernels
