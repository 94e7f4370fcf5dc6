#pragma once

/// Purpose: one rank's optimizer over its shards: the tensors that exist, and the step that is
/// timed.
///
/// Usage:
///     auto optimizer = make_sharded_optimizer(model, plan, config, threads, communicator);
///     optimizer->restart();   // synthetic parameters and gradients, zero state, step 0
///     optimizer->step();
///
/// Caveats: the step is the optimizer's alone. Gradients are those after the reduction, as FSDP
/// hands them to the optimizer; no unit is gathered or scattered. Frozen parameters, parameters
/// without a gradient and empty shards are never stepped and have no state.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/shard_tensors.h"
#include "topologies/communicator.h"
#include "topologies/device_runtime.h"
#include "topologies/group_listener.h"
#include "topologies/model.h"
#include "topologies/optimizer.h"
#include "topologies/shard_plan.h"
#include "topologies/state_policy.h"

namespace stepscope::topologies {

/// The implementation under test.
enum class Subject { native, torch };

/// "native" or "torch".
std::string_view subject_name(Subject subject);

/// What distinguishes one measured case from another on the same model.
struct StepConfig {
  Subject subject = Subject::native;
  Optimizer optimizer = Optimizer::AdamW8bit;
  StatePolicy state_policy = StatePolicy::global;
  kernels::DType dtype = kernels::DType::fp32;
  Device device = Device::cpu;
  kernels::Hyperparameters hyperparameters;
  std::int64_t min_8bit_size = kMin8bitSize;
};

/// One contiguous piece that is stepped (step_layout.h): which elements of which parameters it is,
/// and its tensors.
struct OwnedShard {
  std::vector<Range> ranges;  ///< positions within the piece; elements in none are padding
  kernels::ShardTensors tensors;
};

/// One tensor as the topology hands it to the optimizer: what a training step reads and writes.
/// Memory of the device.
struct LocalView {
  std::vector<Range> ranges;  ///< ascending in position; elements in none are padding
  std::int64_t numel = 0;     ///< elements of the tensor, padding that the optimizer sees included
  void* param = nullptr;
  void* grad = nullptr;  ///< null where nothing is stepped
};

/// Bytes of the tensors that exist on this rank, read from their storage.
struct MeasuredBytes {
  std::int64_t parameter = 0;    ///< padding of the shards included
  std::int64_t gradient = 0;     ///< likewise
  std::int64_t moment = 0;       ///< codes and absmax, or FP32 moments
  std::int64_t code_tables = 0;  ///< once a process, 0 when no state is 8-bit
  std::int64_t step_count = 0;   ///< libtorch keeps one scalar tensor a parameter
  std::int64_t state() const { return moment + code_tables + step_count; }
};

class ShardedOptimizer {
 public:
  virtual ~ShardedOptimizer() = default;

  /// One optimizer step over all stepped pieces of this rank; collective under `original`. On a GPU
  /// the work may still be under way when it returns: DeviceRuntime::synchronize() ends it.
  virtual void step() = 0;

  /// Synthetic parameters and gradients (synthetic_values.h), zero state, step count 0.
  virtual void restart() = 0;

  /// Goes on from parameters and state that the caller has written where local_views() and shards()
  /// point: `steps[i]` becomes the number of the last step of shards()[i]. Collective under
  /// `original`, where the copies of cut blocks are completed again.
  virtual void resume(std::span<const std::int64_t> steps) = 0;

  /// The stepped pieces; `tensors.step` is the number of the last step.
  virtual std::span<const OwnedShard> shards() const = 0;

  /// The local tensors, in the order of ShardPlan::local_tensors(rank).
  virtual std::vector<LocalView> local_views() const = 0;

  virtual MeasuredBytes measured_bytes() const = 0;

  /// Bytes one step has to move between memory and processor on this rank at the least: gradient
  /// and, twice (read and write), parameter and state; elements of stepped shards only. What an
  /// implementation moves beyond that, such as a conversion through scratch memory, is its own loss
  /// and not counted.
  std::int64_t bytes_moved() const;

  /// From now on `listener` is told of the update within each step: all pieces are one group, since
  /// they share their hyperparameters. Null: nobody is. It must outlive the steps.
  void report_groups_to(GroupListener* listener) noexcept { listener_ = listener; }

 protected:
  /// Null where nobody listens or this rank steps nothing.
  GroupListener* listener() const { return shards().empty() ? nullptr : listener_; }

 private:
  GroupListener* listener_ = nullptr;
};

/// Allocates everything this rank needs. `threads` counts this rank's threads. Collective under the
/// state policy `original`, whose steps exchange gradient fragments through `communicator`, which
/// must outlive the optimizer. Throws Error when a combination does not exist (libtorch has no
/// 8-bit optimizer) or memory does not suffice.
std::unique_ptr<ShardedOptimizer> make_sharded_optimizer(const Model& model, const ShardPlan& plan,
                                                         const StepConfig& config,
                                                         std::int64_t threads,
                                                         Communicator& communicator);

}  // namespace stepscope::topologies
