#pragma once

/// Purpose: what a rank really hands to its communicator, to be held against what was planned.
///
/// Usage:
///     MovedBytes moved;
///     CountingCommunicator counting(*communicator, moved);
///     step(counting);
///     moved.units.all_gather.bytes;
///
/// Caveats: communicators that are split from it count into the same `moved`.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topologies/communicator.h"
#include "topologies/unit_traffic.h"

namespace stepscope::topologies {

struct MovedBytes {
  UnitTraffic units;
  std::int64_t exchanges = 0;       ///< all-to-alls
  std::int64_t exchange_bytes = 0;  ///< of all-to-alls, to other ranks
  std::int64_t received_bytes = 0;  ///< of all-to-alls, from other ranks
  std::int64_t others = 0;          ///< calls of every other kind
};

/// Passes everything on and counts it.
class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(Communicator& inner, MovedBytes& moved) : inner_(inner), moved_(moved) {}
  std::int64_t rank() const override { return inner_.rank(); }
  std::int64_t world_size() const override { return inner_.world_size(); }
  void barrier() override {
    ++moved_.others;
    inner_.barrier();
  }
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
    ++moved_.others;
    return inner_.all_gather(mine);
  }
  std::vector<std::string> all_gather_text(const std::string& mine) override {
    ++moved_.others;
    return inner_.all_gather_text(mine);
  }
  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                  std::span<std::byte> receive,
                  std::span<const std::int64_t> receive_bytes) override {
    ++moved_.exchanges;
    const auto me = static_cast<std::size_t>(rank());
    moved_.exchange_bytes += static_cast<std::int64_t>(send.size()) - send_bytes[me];
    moved_.received_bytes += static_cast<std::int64_t>(receive.size()) - receive_bytes[me];
    inner_.all_to_all(send, send_bytes, receive, receive_bytes);
  }
  void all_gather_into(kernels::DType dtype, const void* mine, std::int64_t numel,
                       void* all) override {
    count(moved_.units.all_gather, dtype, numel);
    inner_.all_gather_into(dtype, mine, numel, all);
  }
  void reduce_scatter(kernels::DType dtype, Reduction reduction, const void* all,
                      std::int64_t numel, void* mine) override {
    count(moved_.units.reduce_scatter, dtype, numel * world_size());
    inner_.reduce_scatter(dtype, reduction, all, numel, mine);
  }
  void all_reduce(kernels::DType dtype, Reduction reduction, void* data,
                  std::int64_t numel) override {
    count(moved_.units.all_reduce, dtype, numel);
    inner_.all_reduce(dtype, reduction, data, numel);
  }
  void broadcast(kernels::DType dtype, std::int64_t root, void* data, std::int64_t numel) override {
    ++moved_.others;
    inner_.broadcast(dtype, root, data, numel);
  }
  std::unique_ptr<Communicator> split(std::int64_t group) override {
    ++moved_.others;
    splits_.push_back(inner_.split(group));
    return std::make_unique<CountingCommunicator>(*splits_.back(), moved_);
  }

 private:
  void count(CollectiveTraffic& sum, kernels::DType dtype, std::int64_t numel) const {
    sum.ranks = world_size();
    ++sum.calls;
    sum.bytes += numel * kernels::element_bytes(dtype);
  }
  Communicator& inner_;
  MovedBytes& moved_;
  std::vector<std::unique_ptr<Communicator>> splits_;
};

}  // namespace stepscope::topologies
