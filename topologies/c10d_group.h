#pragma once

/// Purpose: the tensor collectives of Communicator over any c10d backend, with the rule that a
/// failed collective names the ranks that do not answer.
///
/// Usage:
///     C10dGroup group(backend, at::kCPU, members, store);
///     group.run("barrier", [&] { group.finish(group.backend().barrier()); });
///
/// Caveats: includes libtorch; for the implementations of Communicator only.

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "topologies/communicator.h"
#include "topologies/rendezvous_store.h"

namespace stepscope::topologies {

class C10dGroup {
 public:
  /// `members` are the group's ranks by their numbers in the job, in the order of the backend's
  /// ranks. `device` is where the tensors are.
  C10dGroup(c10::intrusive_ptr<c10d::Backend> backend, c10::Device device,
            std::vector<std::int64_t> members, std::shared_ptr<const RendezvousStore> store);

  c10d::Backend& backend() const noexcept { return *backend_; }
  std::int64_t rank() const { return backend_->getRank(); }
  std::int64_t world_size() const { return backend_->getSize(); }
  const std::vector<std::int64_t>& members() const noexcept { return members_; }
  const std::shared_ptr<const RendezvousStore>& store() const noexcept { return store_; }

  /// Runs one collective. What it throws becomes a CollectiveError that begins with "<name> failed"
  /// and names the ranks that do not answer.
  void run(const std::string& name, const std::function<void()>& body) const;

  /// Within run(): waits for a collective that was started. Throws what it fails with.
  ///
  /// Only the ranks that wait for the lost one itself notice at once; others would notice last,
  /// when those have given them up or left. So a waiting rank looks now and then at what the others
  /// report, takes part in finding out who is missing, and throws also where the collective ended
  /// well after all.
  void finish(const c10::intrusive_ptr<c10d::Work>& work) const;

  // As in Communicator.
  void all_gather_into(kernels::DType dtype, const void* mine, std::int64_t numel, void* all) const;
  void reduce_scatter(kernels::DType dtype, Reduction reduction, const void* all,
                      std::int64_t numel, void* mine) const;
  void all_reduce(kernels::DType dtype, Reduction reduction, void* data, std::int64_t numel) const;
  void broadcast(kernels::DType dtype, std::int64_t root, void* data, std::int64_t numel) const;

 private:
  at::Tensor view(kernels::DType dtype, const void* data, std::int64_t numel) const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::Device device_;
  std::vector<std::int64_t> members_;
  std::shared_ptr<const RendezvousStore> store_;
};

}  // namespace stepscope::topologies
