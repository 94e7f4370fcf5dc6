#pragma once

/// Purpose: state policy `original`: blocks of 256 elements start where the original parameter has
/// them, so a shard's border may cut a block. The ranks that share such a block each hold all of it
/// and step it whole; what they lack of each other's gradient is exchanged before the step, in one
/// collective for all parameters.
///
/// Usage:
///     const BorderPlan borders = plan_borders(model, plan, rank, min_8bit_size);
///     BorderExchange exchange(borders, element_bytes(dtype), world_size);
///     exchange.run(communicator, gradients_of_blocks, {.send = ..., .receive = ..., .copy = ...});
///
/// Caveats: parameters with FP32 state are updated element by element and have no blocks. In a
/// replicated topology (hsdp) a rank exchanges with ranks of its own replica only. At most 255
/// elements a border travel.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topologies/communicator.h"
#include "topologies/model.h"
#include "topologies/shard_plan.h"

namespace stepscope::topologies {

/// A block of which this rank owns a part and other ranks own the rest.
struct CutBlock {
  std::size_t parameter = 0;
  std::int64_t offset = 0;      ///< first element of the block, within the parameter
  std::int64_t numel = 0;       ///< 256, or what is left at the parameter's end
  std::int64_t own_offset = 0;  ///< first element this rank owns, within the block
  std::int64_t own_numel = 0;
  std::size_t tensor = 0;     ///< index into ShardPlan::local_tensors(rank)
  std::int64_t position = 0;  ///< of the first own element, within that local tensor
};

/// Part of a cut block that another rank owns.
struct BorderFragment {
  std::size_t block = 0;    ///< index into BorderPlan::blocks
  std::int64_t offset = 0;  ///< within the block
  std::int64_t numel = 0;
};

/// What this rank gives to and takes from one other rank. Both list their common blocks in the
/// order of parameter and offset, so that no message needs to say what it holds.
struct BorderPeer {
  std::int64_t rank = 0;
  std::vector<std::size_t> gives;     ///< blocks whose own part is sent
  std::vector<BorderFragment> takes;  ///< parts received, in the same order of blocks
};

struct BorderPlan {
  std::vector<CutBlock> blocks;   ///< ascending in parameter and offset
  std::vector<BorderPeer> peers;  ///< ascending in rank
};

/// The cut blocks of `rank` over all stepped parameters of at least `min_8bit_size` elements.
BorderPlan plan_borders(const Model& model, const ShardPlan& plan, std::int64_t rank,
                        std::int64_t min_8bit_size);

/// Memory of the communicator's device that an exchange goes through.
struct ExchangeMemory {
  std::span<std::byte> send;     ///< sent_bytes()
  std::span<std::byte> receive;  ///< received_bytes()
  /// Copies within that memory, in the order of the calls.
  void (*copy)(void* destination, const void* source, std::size_t bytes) = nullptr;
};

class BorderExchange {
 public:
  /// `element_bytes`: size of a gradient element.
  BorderExchange(const BorderPlan& borders, std::int64_t element_bytes, std::int64_t world_size);

  /// Completes the gradients of all cut blocks. `blocks[i]` points to the numel elements of
  /// BorderPlan::blocks[i], of which the own part is filled in; the rest is written. One
  /// collective, on every rank, also on those without cut blocks.
  void run(Communicator& communicator, std::span<std::byte* const> blocks,
           const ExchangeMemory& memory) const;

  /// Bytes this rank sends and receives in one run.
  std::int64_t sent_bytes() const noexcept { return sent_; }
  std::int64_t received_bytes() const noexcept { return received_; }

 private:
  BorderPlan borders_;
  std::int64_t element_bytes_;
  std::vector<std::int64_t> send_bytes_, receive_bytes_;  ///< by rank
  std::int64_t sent_ = 0;
  std::int64_t received_ = 0;
};

}  // namespace stepscope::topologies
