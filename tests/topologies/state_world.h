#pragma once

/// Purpose: worlds of thread ranks that step, save and load, and what they hold, for the tests of
/// saved states.
///
/// Usage:
///     const Held held = hold(model, options, config, [&](StateRank& rank) { rank.step(5); });

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "awkward_cases.h"
#include "thread_world.h"
#include "topologies/sharded_optimizer.h"
#include "topologies/state_file.h"

namespace stepscope::topologies {

/// A folder that exists for the time of one test; `path()` itself is not made.
class TempFolder {
 public:
  TempFolder() {
    static int serial = 0;
    root_ = std::filesystem::path(::testing::TempDir()) /
            ("stepscope.state." + std::to_string(::getpid()) + "." + std::to_string(serial++));
    std::filesystem::create_directories(root_);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  std::string path() const { return root_ / "state"; }

 private:
  std::filesystem::path root_;
};

/// One rank of a world.
struct StateRank {
  const Model& model;
  const ShardPlan& plan;
  const StepConfig& config;
  Communicator& communicator;
  std::unique_ptr<ShardedOptimizer> optimizer;
  std::unique_ptr<DeviceRuntime> runtime;

  StateRank(const Model& of, const ShardPlan& by, const StepConfig& with, Communicator& through)
      : model(of),
        plan(by),
        config(with),
        communicator(through),
        optimizer(make_sharded_optimizer(of, by, with, 1, through)),
        runtime(open_device(Device::cpu, 0)) {
    optimizer->restart();
  }
  void step(int count) {
    for (int i = 0; i < count; ++i) optimizer->step();
  }
  void save(const std::string& folder) {
    save_state(folder, model, plan, config, *optimizer, *runtime, communicator);
  }
  LoadedState load(const std::string& folder) {
    return load_state(folder, model, plan, config, *optimizer, *runtime, communicator);
  }
};

/// What an element is: its parameter's bits, then codes and absmax (or FP32 moments) as bits, and
/// its step count.
using Element = std::array<std::uint32_t, 6>;

/// What a world holds, by parameter and element; an element without state has zeros there.
using Held = std::map<std::size_t, std::vector<Element>>;

inline std::uint32_t bits_at(const void* data, std::int64_t i, std::int64_t bytes) {
  std::uint32_t bits = 0;
  if (data == nullptr) return bits;
  std::memcpy(&bits, static_cast<const std::byte*>(data) + i * bytes,
              static_cast<std::size_t>(bytes));
  return bits;
}

/// Adds what one rank holds. Ranks that hold the same element must hold the same.
inline void collect(const StateRank& rank, Held& held,
                    std::map<std::size_t, std::vector<bool>>& seen) {
  const std::int64_t element = kernels::element_bytes(rank.config.dtype);
  std::map<std::size_t, std::vector<bool>> mine;
  for (const LocalView& view : rank.optimizer->local_views()) {
    for (const Range& range : view.ranges) {
      for (std::int64_t i = 0; i < range.numel; ++i) {
        held[range.parameter][static_cast<std::size_t>(range.offset + i)][0] =
            bits_at(view.param, range.position + i, element);
      }
    }
  }
  for (const OwnedShard& shard : rank.optimizer->shards()) {
    const kernels::ShardTensors& t = shard.tensors;
    const std::int64_t bytes = t.format == kernels::StateFormat::fp32 ? 4 : 1;
    bool agree = true;
    for (const Range& range : shard.ranges) {
      for (std::int64_t i = 0; i < range.numel; ++i) {
        const std::int64_t at = range.position + i;
        const auto place = static_cast<std::size_t>(range.offset + i);
        const Element now = {held[range.parameter][place][0],
                             bits_at(t.state1, at, bytes),
                             bits_at(t.state2, at, bytes),
                             bits_at(t.absmax1, at / kernels::kBlockSize, 4),
                             bits_at(t.absmax2, at / kernels::kBlockSize, 4),
                             static_cast<std::uint32_t>(t.step)};
        Element& element_held = held[range.parameter][place];
        agree = agree && (!seen[range.parameter][place] ||
                          std::equal(now.begin() + 1, now.end(), element_held.begin() + 1));
        element_held = now;
        seen[range.parameter][place] = true;
      }
    }
    EXPECT_TRUE(agree) << "ranks hold different states of the same elements";
  }
}

/// Runs `body` on every rank of a world and returns what the world holds then.
inline Held hold(const Model& model, const PlanOptions& options, const StepConfig& config,
                 const std::function<void(StateRank&)>& body) {
  const ShardPlan plan = ShardPlan::make(model, options);
  Held held;
  std::map<std::size_t, std::vector<bool>> seen;
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    held[p].resize(static_cast<std::size_t>(numel(model.parameters[p])));
    seen[p].resize(held[p].size());
  }
  std::mutex mutex;
  ThreadWorld(options.world_size).run([&](Communicator& communicator) {
    StateRank rank(model, plan, config, communicator);
    body(rank);
    communicator.barrier();
    const std::lock_guard lock(mutex);
    collect(rank, held, seen);
  });
  return held;
}

/// All bytes that a rank has: local tensors with padding, states, step counts.
inline std::vector<std::byte> raw(const StateRank& rank) {
  std::vector<std::byte> all;
  const auto add = [&](const void* data, std::int64_t bytes) {
    if (data == nullptr) return;
    const auto* begin = static_cast<const std::byte*>(data);
    all.insert(all.end(), begin, begin + bytes);
  };
  for (const LocalView& view : rank.optimizer->local_views()) {
    add(view.param, view.numel * kernels::element_bytes(rank.config.dtype));
  }
  for (const OwnedShard& shard : rank.optimizer->shards()) {
    const kernels::ShardTensors& t = shard.tensors;
    const std::int64_t bytes = t.format == kernels::StateFormat::fp32 ? 4 : 1;
    add(t.param, t.numel * kernels::element_bytes(t.dtype));
    add(t.state1, t.numel * bytes);
    add(t.state2, t.numel * bytes);
    add(t.absmax1, kernels::block_count(t.numel) * 4);
    add(t.absmax2, kernels::block_count(t.numel) * 4);
    add(&t.step, sizeof t.step);
  }
  return all;
}

inline Model state_model_of(std::int64_t n) {
  return {.name = "one", .parameters = {{.name = "a", .shape = {n}}}};
}

/// Layouts in which borders fall differently.
inline std::vector<PlanOptions> state_layouts() {
  const auto fsdp1 = [](std::int64_t size, WrapPolicy policy) {
    return PlanOptions{.topology = Topology::fsdp1,
                       .world_size = size,
                       .wrapping = {.policy = policy, .units = {}}};
  };
  return {{.topology = Topology::single},
          {.topology = Topology::ddp, .world_size = 2},
          {.topology = Topology::fsdp2, .world_size = 2},
          {.topology = Topology::fsdp2, .world_size = 3},
          {.topology = Topology::fsdp2, .world_size = 8},
          {.topology = Topology::hsdp, .world_size = 4, .replicas = 2},
          {.topology = Topology::hsdp, .world_size = 8, .replicas = 2},
          fsdp1(3, WrapPolicy::whole_model),
          fsdp1(4, WrapPolicy::per_module),
          fsdp1(8, WrapPolicy::per_parameter),
          fsdp1(1, WrapPolicy::whole_model)};
}

}  // namespace stepscope::topologies
