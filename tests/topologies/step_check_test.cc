#include "topologies/step_check.h"

#include <gtest/gtest.h>

#include <functional>

#include "thread_world.h"
#include "topologies/planned_bytes.h"

namespace stepscope::topologies {
namespace {

using kernels::DType;

Model small_model() {
  return {.name = "small",
          .parameters = {{.name = "a", .shape = {33, 257}},
                         {.name = "small", .shape = {100}},
                         {.name = "empty", .shape = {0, 5}},
                         {.name = "b", .shape = {4096}}}};
}

StepConfig config_of(Optimizer optimizer, DType dtype) {
  StepConfig config;
  config.optimizer = optimizer;
  config.subject = optimizer == Optimizer::AdamW ? Subject::torch : Subject::native;
  config.dtype = dtype;
  config.hyperparameters = default_hyperparameters(optimizer);
  config.hyperparameters.learning_rate = 0.1;
  config.hyperparameters.weight_decay = 0.1;
  return config;
}

/// Hands on to a real optimizer and spoils one bit of one shard's tensor after the last checked
/// step.
class Spoiled final : public ShardedOptimizer {
 public:
  Spoiled(ShardedOptimizer& inner, std::size_t shard, std::int64_t element,
          void* kernels::ShardTensors::* tensor)
      : inner_(inner), shard_(shard), element_(element), tensor_(tensor) {}
  void step() override {
    inner_.step();
    if (inner_.shards()[shard_].tensors.step < kCheckedSteps) return;
    auto* bytes = static_cast<unsigned char*>(inner_.shards()[shard_].tensors.*tensor_);
    bytes[element_] ^= 1;
  }
  void restart() override { inner_.restart(); }
  void resume(std::span<const std::int64_t> steps) override { inner_.resume(steps); }
  std::span<const OwnedShard> shards() const override { return inner_.shards(); }
  std::vector<LocalView> local_views() const override { return inner_.local_views(); }
  MeasuredBytes measured_bytes() const override { return inner_.measured_bytes(); }

 private:
  ShardedOptimizer& inner_;
  std::size_t shard_;
  std::int64_t element_;
  void* kernels::ShardTensors::* tensor_;
};

/// A world of one rank, for what is not about communication.
void alone(const std::function<void(Communicator&)>& body) { ThreadWorld(1).run(body); }

class StepCheckOfEveryCase : public testing::TestWithParam<std::tuple<Optimizer, DType>> {};

TEST_P(StepCheckOfEveryCase, ARightOptimizerPassesAndIsLeftRestarted) {
  const auto [which, dtype] = GetParam();
  const StepConfig config = config_of(which, dtype);
  const Model model = small_model();
  const auto plan = ShardPlan::make(model, Topology::fsdp2, 1);
  alone([&](Communicator& lone) {
    const auto optimizer = make_sharded_optimizer(model, plan, config, 1, lone);
    const auto runtime = open_device(Device::cpu, 0);
    const StepCheck check = check_against_reference(*optimizer, config, model, *runtime, lone);
    EXPECT_FALSE(check.difference.has_value()) << check.difference->what();
    if (config.subject == Subject::native) {
      EXPECT_EQ(check.checked, "reference: all elements, 2 steps, every bit");
    }
    for (const OwnedShard& shard : optimizer->shards()) EXPECT_EQ(shard.tensors.step, 0);
  });
}

TEST_P(StepCheckOfEveryCase, MeasuredBytesArePlannedBytesOnEveryRank) {
  const auto [which, dtype] = GetParam();
  const StepConfig config = config_of(which, dtype);
  const Model model = small_model();
  for (const std::int64_t world_size : {1, 2, 3, 40}) {
    const auto plan = ShardPlan::make(model, Topology::fsdp2, world_size);
    ThreadWorld(world_size).run([&](Communicator& communicator) {
      const auto optimizer = make_sharded_optimizer(model, plan, config, 1, communicator);
      const MeasuredBytes measured = optimizer->measured_bytes();
      const PlannedBytes planned =
          planned_bytes(model, plan, communicator.rank(), config.optimizer, config.dtype);
      EXPECT_EQ(measured.parameter, planned.parameter);
      EXPECT_EQ(measured.gradient, planned.gradient);
      EXPECT_EQ(measured.moment, planned.moment);
      EXPECT_EQ(measured.state(), planned.state());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, StepCheckOfEveryCase,
                         testing::Combine(testing::Values(Optimizer::AdamW8bit, Optimizer::Lion8bit,
                                                          Optimizer::AdamW),
                                          testing::Values(DType::fp32, DType::bf16, DType::fp16)));

TEST(StepCheck, OneWrongBitOfAnyTensorIsFoundAndNamed) {
  const StepConfig config = config_of(Optimizer::AdamW8bit, DType::fp32);
  const Model model = small_model();
  const auto plan = ShardPlan::make(model, Topology::fsdp2, 1);
  alone([&](Communicator& lone) {
    const auto optimizer = make_sharded_optimizer(model, plan, config, 1, lone);
    const auto runtime = open_device(Device::cpu, 0);
    const std::tuple<void* kernels::ShardTensors::*, std::int64_t, const char*> spoils[] = {
        {&kernels::ShardTensors::param, 4 * 8480, "parameter at element 8480"},
        {&kernels::ShardTensors::state1, 300, "state1 at element 300"},
        {&kernels::ShardTensors::state2, 8480, "state2 at element 8480"}};
    for (const auto& [tensor, byte, words] : spoils) {
      Spoiled spoiled(*optimizer, 0, byte, tensor);
      const StepCheck check = check_against_reference(spoiled, config, model, *runtime, lone);
      ASSERT_TRUE(check.difference.has_value()) << words;
      const std::string message = check.difference->what();
      EXPECT_NE(message.find("rank 0: parameter a"), std::string::npos) << message;
      EXPECT_NE(message.find(words), std::string::npos) << message;
    }
  });
}

TEST(StepCheck, LibtorchBeyondAFewUnitsInTheLastPlaceIsFound) {
  const StepConfig config = config_of(Optimizer::AdamW, DType::fp32);
  const Model model = small_model();
  const auto plan = ShardPlan::make(model, Topology::fsdp2, 1);
  alone([&](Communicator& lone) {
    const auto optimizer = make_sharded_optimizer(model, plan, config, 1, lone);
    const auto runtime = open_device(Device::cpu, 0);
    // Bit 0 of byte 1 is 256 units of the second moment.
    Spoiled spoiled(*optimizer, 2, 4 * 4095 + 1, &kernels::ShardTensors::state2);
    const StepCheck check = check_against_reference(spoiled, config, model, *runtime, lone);
    ASSERT_TRUE(check.difference.has_value());
    EXPECT_NE(std::string(check.difference->what()).find("parameter b"), std::string::npos);
  });
}

}  // namespace
}  // namespace stepscope::topologies
