#include "topologies/gloo_communicator.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/error.h"
#include "topologies/c10d_group.h"
#include "topologies/communicator.h"
#include "topologies/network_interface.h"
#include "topologies/recorded_collective.h"
#include "topologies/rendezvous_store.h"

namespace stepscope::topologies {
namespace {

using std::chrono::milliseconds;

using Devices = std::vector<std::shared_ptr<gloo::transport::Device>>;

Devices make_devices(const Rendezvous& rendezvous) {
  Devices devices;
  for (const std::string& name : gloo_interfaces(std::getenv("GLOO_SOCKET_IFNAME"))) {
    devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (!devices.empty()) return devices;
  // Ranks of one host need no network, and the host's name may not resolve.
  if (rendezvous.local_world_size == rendezvous.world_size) {
    return {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  }
  // Not c10d's default: this host's name, which often means loopback to this host alone.
  return {
      c10d::ProcessGroupGloo::createDeviceForHostname(own_address_towards(rendezvous.master_addr))};
}

/// Connects the ranks `members` of the job, which is collective among them. `name` keeps their keys
/// in the store apart from those of other groups.
C10dGroup connect(const std::shared_ptr<const RendezvousStore>& store, const std::string& name,
                  const std::vector<std::int64_t>& members, milliseconds timeout) {
  const Rendezvous& rendezvous = store->rendezvous();
  const auto place = std::find(members.begin(), members.end(), rendezvous.rank) - members.begin();
  auto backend = translated(
      rendezvous, "connecting to the other ranks with Gloo",
      "set GLOO_SOCKET_IFNAME to the network interface that the ranks share", [&] {
        return bounded<c10::intrusive_ptr<c10d::Backend>>(
            timeout + kLastWords,
            [keys = c10::make_intrusive<c10d::PrefixStore>(name, store->handle()), rendezvous,
             timeout, rank = static_cast<int>(place), size = static_cast<int>(members.size())] {
              auto options = c10d::ProcessGroupGloo::Options::create(timeout);
              options->devices = make_devices(rendezvous);
              return c10::make_intrusive<c10d::ProcessGroupGloo>(keys, rank, size, options);
            });
      });
  return {std::move(backend), at::kCPU, members, store};
}

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(C10dGroup group, std::string name, milliseconds timeout)
      : group_(std::move(group)), name_(std::move(name)), timeout_(timeout) {}

  std::int64_t rank() const override { return group_.rank(); }
  std::int64_t world_size() const override { return group_.world_size(); }

  void barrier() override {
    group_.run("barrier", [&] {
      const RecordedCollective report("c10d::barrier", {});
      group_.finish(group_.backend().barrier());
    });
  }

  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
    const auto length = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world_size()));
    if (length == 0) return all;
    group_.run("all-gather", [&] {
      // Gloo only reads the input; from_blob has no const form.
      auto input = at::from_blob(const_cast<std::int64_t*>(mine.data()), {length}, at::kLong);
      auto output = at::from_blob(all.data(), {length * world_size()}, at::kLong);
      const RecordedCollective report("c10d::_allgather_base_", {output, input});
      group_.finish(group_.backend()._allgather_base(output, input));
    });
    return all;
  }

  std::vector<std::string> all_gather_text(const std::string& mine) override {
    const auto size = static_cast<std::int64_t>(mine.size());
    const auto sizes = all_gather(std::span(&size, 1));
    const auto longest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
    std::vector<std::int64_t> words((longest + 7) / 8);
    if (!mine.empty()) std::memcpy(words.data(), mine.data(), mine.size());
    const auto all = all_gather(words);
    std::vector<std::string> texts;
    for (std::size_t peer = 0; peer < sizes.size(); ++peer) {
      const auto* begin = reinterpret_cast<const char*>(all.data() + peer * words.size());
      texts.emplace_back(begin, static_cast<std::size_t>(sizes[peer]));
    }
    return texts;
  }

  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                  std::span<std::byte> receive,
                  std::span<const std::int64_t> receive_bytes) override {
    group_.run("all-to-all", [&] {
      // Gloo only reads the input; from_blob has no const form.
      auto input = at::from_blob(const_cast<std::byte*>(send.data()),
                                 {static_cast<std::int64_t>(send.size())}, at::kByte);
      auto output =
          at::from_blob(receive.data(), {static_cast<std::int64_t>(receive.size())}, at::kByte);
      std::vector<std::int64_t> input_counts(send_bytes.begin(), send_bytes.end());
      std::vector<std::int64_t> output_counts(receive_bytes.begin(), receive_bytes.end());
      const RecordedCollective report("c10d::alltoall_base_", {output, input});
      group_.finish(group_.backend().alltoall_base(output, input, output_counts, input_counts));
    });
  }

  void all_gather_into(kernels::DType dtype, const void* mine, std::int64_t numel,
                       void* all) override {
    group_.all_gather_into(dtype, mine, numel, all);
  }
  void reduce_scatter(kernels::DType dtype, Reduction reduction, const void* all,
                      std::int64_t numel, void* mine) override {
    group_.reduce_scatter(dtype, reduction, all, numel, mine);
  }
  void all_reduce(kernels::DType dtype, Reduction reduction, void* data,
                  std::int64_t numel) override {
    group_.all_reduce(dtype, reduction, data, numel);
  }
  void broadcast(kernels::DType dtype, std::int64_t root, void* data, std::int64_t numel) override {
    group_.broadcast(dtype, root, data, numel);
  }

  std::unique_ptr<Communicator> split(std::int64_t group) override {
    const auto groups = all_gather(std::span(&group, 1));
    std::vector<std::int64_t> members;
    for (std::size_t peer = 0; peer < groups.size(); ++peer) {
      if (groups[peer] == group) members.push_back(group_.members()[peer]);
    }
    const std::string name =
        name_ + "/split" + std::to_string(splits_++) + "." + std::to_string(group);
    return std::make_unique<GlooCommunicator>(connect(group_.store(), name, members, timeout_),
                                              name, timeout_);
  }

 private:
  C10dGroup group_;
  std::string name_;
  milliseconds timeout_;
  std::int64_t splits_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> connect_gloo(const std::shared_ptr<const RendezvousStore>& store,
                                           const Timeouts& timeouts) {
  std::vector<std::int64_t> everyone(static_cast<std::size_t>(store->rendezvous().world_size));
  std::iota(everyone.begin(), everyone.end(), std::int64_t{0});
  return std::make_unique<GlooCommunicator>(connect(store, "all", everyone, timeouts.collective),
                                            "all", timeouts.collective);
}

std::shared_ptr<const RendezvousStore> meet_for_gloo(const Rendezvous& rendezvous,
                                                     const Timeouts& timeouts) {
  // Before any rank waits for another.
  gloo_interfaces(std::getenv("GLOO_SOCKET_IFNAME"));
  return std::make_shared<const RendezvousStore>(rendezvous, timeouts);
}

std::unique_ptr<Communicator> connect_gloo(const Rendezvous& rendezvous, const Timeouts& timeouts) {
  return connect_gloo(meet_for_gloo(rendezvous, timeouts), timeouts);
}

}  // namespace stepscope::topologies
