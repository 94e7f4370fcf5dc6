#include "topologies/c10d_group.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "topologies/recorded_collective.h"
#include "topologies/torch_types.h"

namespace stepscope::topologies {
namespace {

/// c10d's message without its source path and its general advice.
std::string essence(std::string text) {
  if (text.starts_with('[')) text.erase(0, std::min(text.find("] ") + 2, text.size()));
  text = text.substr(0, text.find(". This is typically"));
  return text.substr(0, text.find('\n'));
}

/// Whether the work has ended within `limit`. Throws what it has failed with.
bool ends_within(c10d::Work& work, std::chrono::milliseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    work.wait(limit);
    return true;
  } catch (const std::exception&) {
    // What comes before the limit is a failure of the work; after it, the next call finds out. Not
    // every Work of c10d says truly whether it is completed: that of a reduce-scatter never does.
    if (std::chrono::steady_clock::now() - begin < limit) throw;
    return false;
  }
}

c10d::ReduceOp operation(Reduction reduction) {
  return reduction == Reduction::sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::AVG;
}

}  // namespace

C10dGroup::C10dGroup(c10::intrusive_ptr<c10d::Backend> backend, c10::Device device,
                     std::vector<std::int64_t> members,
                     std::shared_ptr<const RendezvousStore> store)
    : backend_(std::move(backend)),
      device_(device),
      members_(std::move(members)),
      store_(std::move(store)) {}

void C10dGroup::run(const std::string& name, const std::function<void()>& body) const {
  std::string reason;
  try {
    body();
    return;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  throw CollectiveError(name + " failed, " + store_->missing_peers(members_) + " (" +
                            backend_->getBackendName() + ": " + essence(reason) + ")",
                        "look at that rank's output; --timeout sets how long a rank waits",
                        {.rank = store_->rendezvous().rank});
}

void C10dGroup::finish(const c10::intrusive_ptr<c10d::Work>& work) const {
  bool failed_elsewhere = false;
  // Until it ends, for better or worse: it uses the caller's memory, and cannot be called off.
  while (!ends_within(*work, kGlance)) {
    if (failed_elsewhere || !store_->failure_reported()) continue;
    failed_elsewhere = true;
    store_->missing_peers(members_);
  }
  if (failed_elsewhere) throw std::runtime_error("another rank has reported a failure");
}

void C10dGroup::all_gather_into(kernels::DType dtype, const void* mine, std::int64_t numel,
                                void* all) const {
  if (numel == 0) return;
  run("all-gather", [&] {
    auto input = view(dtype, mine, numel);
    auto output = view(dtype, all, numel * world_size());
    const RecordedCollective report("c10d::_allgather_base_", {output, input});
    finish(backend_->_allgather_base(output, input));
  });
}

void C10dGroup::reduce_scatter(kernels::DType dtype, Reduction reduction, const void* all,
                               std::int64_t numel, void* mine) const {
  if (numel == 0) return;
  run("reduce-scatter", [&] {
    auto input = view(dtype, all, numel * world_size());
    auto output = view(dtype, mine, numel);
    c10d::ReduceScatterOptions options;
    options.reduceOp = operation(reduction);
    const RecordedCollective report("c10d::_reduce_scatter_base_", {output, input});
    finish(backend_->_reduce_scatter_base(output, input, options));
  });
}

void C10dGroup::all_reduce(kernels::DType dtype, Reduction reduction, void* data,
                           std::int64_t numel) const {
  if (numel == 0) return;
  run("all-reduce", [&] {
    std::vector<at::Tensor> tensors = {view(dtype, data, numel)};
    c10d::AllreduceOptions options;
    options.reduceOp = operation(reduction);
    const RecordedCollective report("c10d::allreduce_", {tensors[0]});
    finish(backend_->allreduce(tensors, options));
  });
}

void C10dGroup::broadcast(kernels::DType dtype, std::int64_t root, void* data,
                          std::int64_t numel) const {
  if (numel == 0) return;
  run("broadcast", [&] {
    std::vector<at::Tensor> tensors = {view(dtype, data, numel)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    const RecordedCollective report("c10d::broadcast_", {tensors[0]});
    finish(backend_->broadcast(tensors, options));
  });
}

at::Tensor C10dGroup::view(kernels::DType dtype, const void* data, std::int64_t numel) const {
  // c10d only reads its inputs; from_blob has no const form.
  return at::from_blob(const_cast<void*>(data), {numel},
                       at::TensorOptions().dtype(scalar_type(dtype)).device(device_));
}

}  // namespace stepscope::topologies
