#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "topologies/communicator.h"
#include "topologies/torch_types.h"

namespace stepscope::topologies {

/// A world whose ranks are threads of one process, so that many small worlds can be tried in a
/// moment. The seam is Communicator; what runs above it is the real code. Reductions add in rank
/// order, in the elements' own type.
class ThreadWorld {
 public:
  explicit ThreadWorld(std::int64_t size)
      : size_(size), barrier_(size), slots_(static_cast<std::size_t>(size)) {}

  /// Runs `body` on a thread a rank and throws what the lowest rank threw. A body that throws on
  /// one rank must throw on all, or the others wait for it.
  void run(const std::function<void(Communicator&)>& body) {
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size_));
    std::vector<std::thread> threads;
    for (std::int64_t rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Member member(*this, rank);
          body(member);
        } catch (...) {
          failures[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  }

  /// All-to-alls that were called, counted once a world.
  std::int64_t all_to_alls() const { return all_to_alls_; }

  /// Collectives of every kind, barriers included, counted once a world: for rank 0 and, when run()
  /// has returned, for everybody.
  std::int64_t collectives() const { return collectives_; }

 private:
  struct Slot {
    const void* data = nullptr;
    std::span<const std::int64_t> sizes;
  };

  class Member final : public Communicator {
   public:
    Member(ThreadWorld& world, std::int64_t rank) : world_(world), rank_(rank) {}
    std::int64_t rank() const override { return rank_; }
    std::int64_t world_size() const override { return world_.size_; }
    void barrier() override {
      count();
      world_.barrier_.arrive_and_wait();
    }

    std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
      std::vector<std::int64_t> all;
      exchange(mine.data(), {}, [&](std::size_t, const Slot& slot) {
        const auto* numbers = static_cast<const std::int64_t*>(slot.data);
        all.insert(all.end(), numbers, numbers + mine.size());
      });
      return all;
    }

    std::vector<std::string> all_gather_text(const std::string& mine) override {
      std::vector<std::string> all;
      exchange(&mine, {}, [&](std::size_t, const Slot& slot) {
        all.push_back(*static_cast<const std::string*>(slot.data));
      });
      return all;
    }

    void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                    std::span<std::byte> receive,
                    std::span<const std::int64_t> receive_bytes) override {
      if (rank_ == 0) ++world_.all_to_alls_;
      std::byte* out = receive.data();
      exchange(send.data(), send_bytes, [&](std::size_t peer, const Slot& slot) {
        const auto me = static_cast<std::size_t>(rank_);
        std::int64_t skip = 0;
        for (std::size_t r = 0; r < me; ++r) skip += slot.sizes[r];
        if (slot.sizes[me] != receive_bytes[peer]) {
          throw Error("a peer sends more or less than was expected of it");
        }
        out = std::copy_n(static_cast<const std::byte*>(slot.data) + skip, slot.sizes[me], out);
      });
    }

    void all_gather_into(kernels::DType dtype, const void* mine, std::int64_t numel,
                         void* all) override {
      const std::int64_t bytes = numel * kernels::element_bytes(dtype);
      exchange(mine, {}, [&](std::size_t peer, const Slot& slot) {
        std::copy_n(static_cast<const std::byte*>(slot.data), bytes,
                    static_cast<std::byte*>(all) + static_cast<std::int64_t>(peer) * bytes);
      });
    }

    void reduce_scatter(kernels::DType dtype, Reduction reduction, const void* all,
                        std::int64_t numel, void* mine) override {
      const auto sum = reduced(dtype, reduction, all, numel * world_.size_);
      view(dtype, mine, numel).copy_(sum.narrow(0, rank_ * numel, numel));
    }

    void all_reduce(kernels::DType dtype, Reduction reduction, void* data,
                    std::int64_t numel) override {
      view(dtype, data, numel).copy_(reduced(dtype, reduction, data, numel));
    }

    void broadcast(kernels::DType dtype, std::int64_t root, void* data,
                   std::int64_t numel) override {
      exchange(data, {}, [&](std::size_t peer, const Slot& slot) {
        if (static_cast<std::int64_t>(peer) == root && rank_ != root) {
          view(dtype, data, numel).copy_(view(dtype, slot.data, numel));
        }
      });
    }

    std::unique_ptr<Communicator> split(std::int64_t group) override {
      const auto groups = all_gather(std::span(&group, 1));
      const auto size = std::count(groups.begin(), groups.end(), group);
      const auto place = std::count(groups.begin(), groups.begin() + rank_, group);
      const std::lock_guard lock(world_.children_mutex_);
      auto& child = world_.children_[{splits_++, group}];
      if (!child) child = std::make_unique<ThreadWorld>(size);
      return std::make_unique<Member>(*child, place);
    }

   private:
    void count() {
      if (rank_ == 0) ++world_.collectives_;
    }

    static at::Tensor view(kernels::DType dtype, const void* data, std::int64_t numel) {
      return at::from_blob(const_cast<void*>(data), {numel}, scalar_type(dtype));
    }

    /// The reduction of all ranks' `data`; every rank has read when it returns.
    at::Tensor reduced(kernels::DType dtype, Reduction reduction, const void* data,
                       std::int64_t numel) {
      at::Tensor sum;
      exchange(data, {}, [&](std::size_t, const Slot& slot) {
        const auto other = view(dtype, slot.data, numel);
        if (sum.defined()) {
          sum.add_(other);
        } else {
          sum = other.clone();
        }
      });
      if (reduction == Reduction::mean) sum.div_(world_.size_);
      return sum;
    }

    template <typename Read>
    void exchange(const void* data, std::span<const std::int64_t> sizes, Read read) {
      count();
      world_.slots_[static_cast<std::size_t>(rank_)] = {data, sizes};
      world_.barrier_.arrive_and_wait();
      for (std::size_t peer = 0; peer < world_.slots_.size(); ++peer) {
        read(peer, world_.slots_[peer]);
      }
      world_.barrier_.arrive_and_wait();
    }

    ThreadWorld& world_;
    std::int64_t rank_;
    std::int64_t splits_ = 0;
  };

  std::int64_t size_;
  std::barrier<> barrier_;
  std::vector<Slot> slots_;
  std::int64_t all_to_alls_ = 0;
  std::int64_t collectives_ = 0;
  std::mutex children_mutex_;
  /// By the number of the split and the group.
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<ThreadWorld>> children_;
};

}  // namespace stepscope::topologies
