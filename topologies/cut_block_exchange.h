#pragma once

/// Purpose: what an optimizer does around its step under `original`, on any device: completes the
/// gradients of the blocks that shard borders cut, and keeps the shards and the copies of those
/// blocks in step.
///
/// Usage:
///     auto cut_blocks = CutBlockExchange::make(storage, config, communicator, copy);
///     if (cut_blocks) cut_blocks->complete();       // after every new start
///     if (cut_blocks) cut_blocks->before_step();
///     step_all_pieces();
///     if (cut_blocks) cut_blocks->after_step();
///
/// Caveats: includes libtorch; internal to the implementations of ShardedOptimizer. Collective.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "topologies/border_exchange.h"
#include "topologies/communicator.h"
#include "topologies/shard_storage.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

class CutBlockExchange {
 public:
  using Copy = void (*)(void* destination, const void* source, std::size_t bytes);

  /// Nothing where no border of any rank cuts a block of 8-bit state, on which all ranks agree.
  /// `storage` and `communicator` must outlive it; `copy` copies within the device's memory, in the
  /// order of the calls and of the step's kernels.
  static std::optional<CutBlockExchange> make(const ShardStorage& storage, const StepConfig& config,
                                              Communicator& communicator, Copy copy);

  /// Brings the own parts of parameters and gradients into the copies of the cut blocks, and the
  /// other ranks' parts of the gradients. One collective.
  void before_step();

  /// Brings the own parts of the stepped parameters back.
  void after_step();

  /// Brings the other ranks' parts of the parameters: from then on every rank of a cut block
  /// computes all of it. One collective.
  void complete();

 private:
  CutBlockExchange(const ShardStorage& storage, const StepConfig& config,
                   Communicator& communicator, Copy copy);
  ExchangeMemory memory() const;

  const ShardStorage* storage_;
  Communicator* communicator_;
  Copy copy_;
  BorderExchange exchange_;
  std::vector<std::byte*> block_params_, block_grads_;  ///< copies of cut blocks
  at::Tensor send_, receive_;                           ///< bytes
};

}  // namespace stepscope::topologies
