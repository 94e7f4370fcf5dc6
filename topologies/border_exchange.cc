#include "topologies/border_exchange.h"

#include <algorithm>
#include <map>

namespace stepscope::topologies {
namespace {

using kernels::kBlockSize;

/// Blocks at the two ends of a range that reach beyond it; at most one where the range lies within
/// a block.
std::vector<std::int64_t> cut_block_offsets(std::int64_t begin, std::int64_t end,
                                            std::int64_t numel) {
  std::vector<std::int64_t> offsets;
  const std::int64_t first = begin - begin % kBlockSize;
  if (first != begin) offsets.push_back(first);
  const std::int64_t last = end - end % kBlockSize;
  const bool last_is_cut = last != end && end != numel;
  if (last_is_cut && (offsets.empty() || last != first)) offsets.push_back(last);
  return offsets;
}

}  // namespace

BorderPlan plan_borders(const Model& model, const ShardPlan& plan, std::int64_t rank,
                        std::int64_t min_8bit_size) {
  BorderPlan borders;
  const std::int64_t shards = plan.shards();
  const std::int64_t own_shard = rank % shards;
  const auto tensors = plan.local_tensors(rank);
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    if (!tensors[tensor].stepped) continue;
    for (const Range& range : tensors[tensor].ranges) {
      const std::int64_t global_numel = numel(model.parameters[range.parameter]);
      if (range.numel == 0 || global_numel < min_8bit_size) continue;
      const std::int64_t end = range.offset + range.numel;
      for (const std::int64_t offset : cut_block_offsets(range.offset, end, global_numel)) {
        const std::int64_t block_end = std::min(offset + kBlockSize, global_numel);
        const std::int64_t own_begin = std::max(offset, range.offset);
        borders.blocks.push_back({.parameter = range.parameter,
                                  .offset = offset,
                                  .numel = block_end - offset,
                                  .own_offset = own_begin - offset,
                                  .own_numel = std::min(block_end, end) - own_begin,
                                  .tensor = tensor,
                                  .position = range.position + own_begin - range.offset});
      }
    }
  }
  std::sort(borders.blocks.begin(), borders.blocks.end(), [](const CutBlock& a, const CutBlock& b) {
    return a.parameter != b.parameter ? a.parameter < b.parameter : a.offset < b.offset;
  });

  std::map<std::int64_t, BorderPeer> peers;
  for (std::size_t i = 0; i < borders.blocks.size(); ++i) {
    const CutBlock& block = borders.blocks[i];
    for (const Owner& owner : plan.owners(block.parameter, block.offset, block.numel)) {
      if (owner.shard == own_shard) continue;
      const std::int64_t peer_rank = rank - own_shard + owner.shard;
      BorderPeer& peer = peers[peer_rank];
      peer.rank = peer_rank;
      peer.gives.push_back(i);
      peer.takes.push_back(
          {.block = i, .offset = owner.offset - block.offset, .numel = owner.numel});
    }
  }
  for (auto& [peer_rank, peer] : peers) borders.peers.push_back(std::move(peer));
  return borders;
}

BorderExchange::BorderExchange(const BorderPlan& borders, std::int64_t element_bytes,
                               std::int64_t world_size)
    : borders_(borders),
      element_bytes_(element_bytes),
      send_bytes_(static_cast<std::size_t>(world_size)),
      receive_bytes_(static_cast<std::size_t>(world_size)) {
  for (const BorderPeer& peer : borders_.peers) {
    const auto index = static_cast<std::size_t>(peer.rank);
    for (const std::size_t block : peer.gives) {
      send_bytes_[index] += borders_.blocks[block].own_numel * element_bytes_;
    }
    for (const BorderFragment& fragment : peer.takes) {
      receive_bytes_[index] += fragment.numel * element_bytes_;
    }
    sent_ += send_bytes_[index];
    received_ += receive_bytes_[index];
  }
}

void BorderExchange::run(Communicator& communicator, std::span<std::byte* const> blocks,
                         const ExchangeMemory& memory) const {
  std::byte* out = memory.send.data();
  for (const BorderPeer& peer : borders_.peers) {
    for (const std::size_t i : peer.gives) {
      const CutBlock& block = borders_.blocks[i];
      const auto bytes = static_cast<std::size_t>(block.own_numel * element_bytes_);
      memory.copy(out, blocks[i] + block.own_offset * element_bytes_, bytes);
      out += bytes;
    }
  }
  communicator.all_to_all(memory.send, send_bytes_, memory.receive, receive_bytes_);
  const std::byte* in = memory.receive.data();
  for (const BorderPeer& peer : borders_.peers) {
    for (const BorderFragment& fragment : peer.takes) {
      const auto bytes = static_cast<std::size_t>(fragment.numel * element_bytes_);
      memory.copy(blocks[fragment.block] + fragment.offset * element_bytes_, in, bytes);
      in += bytes;
    }
  }
}

}  // namespace stepscope::topologies
