// Saving and loading with the real optimizers; ranks are threads of this process.

#include "topologies/state_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "kernels/reference_step.h"
#include "state_world.h"
#include "tests/core/error_text.h"
#include "topologies/state_index.h"
#include "topologies/synthetic_values.h"

namespace stepscope::topologies {
namespace {

using kernels::DType;
using testing::Combine;
using testing::Values;

std::vector<PlanOptions> few_layouts() {
  return {{.topology = Topology::single},
          {.topology = Topology::fsdp2, .world_size = 2},
          {.topology = Topology::hsdp, .world_size = 4, .replicas = 2},
          {.topology = Topology::fsdp1,
           .world_size = 3,
           .wrapping = {.policy = WrapPolicy::whole_model, .units = {}}}};
}

std::string label(const PlanOptions& from, const PlanOptions& to) {
  return layout_name(from) + " -> " + layout_name(to);
}

/// Loads into an optimizer that has been somewhere else before, so that what is not loaded shows.
void load_over_other_steps(StateRank& rank, const std::string& folder) {
  rank.step(2);
  rank.load(folder);
}

class Resume : public testing::TestWithParam<std::tuple<Optimizer, DType, StatePolicy>> {};

TEST_P(Resume, FiveStepsSaveLoadAndFiveStepsAreTenSteps) {
  const auto [optimizer, dtype, policy] = GetParam();
  StepConfig config = awkward_config(optimizer, dtype, policy);
  for (const Model& model : {state_model_of(4097), state_model_of(8192), awkward_model()}) {
    for (const PlanOptions& options : few_layouts()) {
      const ShardPlan plan = ShardPlan::make(model, options);
      const TempFolder folder;
      ThreadWorld(options.world_size).run([&](Communicator& communicator) {
        StateRank straight(model, plan, config, communicator);
        straight.step(10);
        StateRank stopped(model, plan, config, communicator);
        stopped.step(5);
        stopped.save(folder.path());
        StateRank resumed(model, plan, config, communicator);
        load_over_other_steps(resumed, folder.path());
        EXPECT_EQ(raw(resumed), raw(stopped)) << layout_name(options);
        resumed.step(5);
        EXPECT_EQ(raw(resumed), raw(straight)) << layout_name(options);
        for (const OwnedShard& shard : resumed.optimizer->shards()) {
          EXPECT_EQ(shard.tensors.step, 10);
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Resume,
    Combine(Values(Optimizer::AdamW8bit, Optimizer::Lion8bit, Optimizer::AdamW),
            Values(DType::fp32, DType::bf16),
            Values(StatePolicy::local, StatePolicy::global, StatePolicy::original)));

class Schedule : public testing::TestWithParam<std::tuple<Optimizer, std::int64_t>> {};

TEST_P(Schedule, AnotherLearningRateAfterTheLoadGoesOnAtStepSixNotAtStepOne) {
  const auto [optimizer, n] = GetParam();
  const StepConfig first = awkward_config(optimizer, DType::fp32, StatePolicy::original);
  StepConfig second = first;
  second.hyperparameters.learning_rate = 0.003;
  const Model model = state_model_of(n);
  const TempFolder folder;
  const PlanOptions options{.topology = Topology::fsdp2, .world_size = 2};
  hold(model, options, first, [&](StateRank& rank) {
    rank.step(5);
    rank.save(folder.path());
  });
  const Held resumed =
      hold(model, {.topology = Topology::fsdp2, .world_size = 2}, second, [&](StateRank& rank) {
        const LoadedState loaded = rank.load(folder.path());
        EXPECT_EQ(loaded.hyperparameters.learning_rate, 0.01);
        rank.step(5);
      });

  const auto count = static_cast<std::size_t>(n);
  std::vector<float> p(count), g(count);
  std::vector<std::uint8_t> s1(count), s2(count);
  std::vector<float> a1(static_cast<std::size_t>(kernels::block_count(n))), a2(a1.size());
  fill_parameter(DType::fp32, p.data(), 0, 0, n);
  fill_gradient(DType::fp32, g.data(), 0, 0, n);
  const bool two = optimizer == Optimizer::AdamW8bit;
  kernels::ShardTensors want{.param = p.data(),
                             .grad = g.data(),
                             .numel = n,
                             .state1 = s1.data(),
                             .state2 = two ? s2.data() : nullptr,
                             .absmax1 = a1.data(),
                             .absmax2 = two ? a2.data() : nullptr,
                             .absmax_count = kernels::block_count(n)};
  for (want.step = 1; want.step <= 10; ++want.step) {
    kernels::step_reference(algorithm(optimizer),
                            want.step <= 5 ? first.hyperparameters : second.hyperparameters, want);
  }
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(resumed.at(0)[i][0], std::bit_cast<std::uint32_t>(p[i])) << i;
    ASSERT_EQ(resumed.at(0)[i][1], s1[i]) << i;
    ASSERT_EQ(resumed.at(0)[i][3], std::bit_cast<std::uint32_t>(a1[i / 256])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Schedule,
                         Combine(Values(Optimizer::AdamW8bit, Optimizer::Lion8bit),
                                 Values(4097, 8192)));

/// Saves from every layout and loads into every other: first what an unsharded run holds then, and
/// with `steps` more what it holds later.
void carry_over_all(const Model& model, const StepConfig& config,
                    const std::vector<PlanOptions>& layouts, int steps) {
  const Held at5 =
      hold(model, {.topology = Topology::single}, config, [](StateRank& r) { r.step(5); });
  const Held later =
      hold(model, {.topology = Topology::single}, config, [&](StateRank& r) { r.step(5 + steps); });
  for (const PlanOptions& from : layouts) {
    const TempFolder folder;
    ASSERT_EQ(hold(model, from, config,
                   [&](StateRank& rank) {
                     rank.step(5);
                     rank.save(folder.path());
                   }),
              at5)
        << layout_name(from);
    for (const PlanOptions& to : layouts) {
      ASSERT_EQ(hold(model, to, config,
                     [&](StateRank& rank) { load_over_other_steps(rank, folder.path()); }),
                at5)
          << label(from, to);
      if (steps == 0) continue;
      ASSERT_EQ(hold(model, to, config,
                     [&](StateRank& rank) {
                       load_over_other_steps(rank, folder.path());
                       rank.step(steps);
                     }),
                later)
          << label(from, to);
    }
  }
}

class Original : public testing::TestWithParam<std::tuple<Optimizer, DType>> {};

TEST_P(Original, EveryLayoutLoadsEveryOtherAndGoesOnAsTheUnshardedRun) {
  const auto [optimizer, dtype] = GetParam();
  carry_over_all(awkward_model(), awkward_config(optimizer, dtype, StatePolicy::original),
                 state_layouts(), 5);
}

INSTANTIATE_TEST_SUITE_P(All, Original,
                         Combine(Values(Optimizer::AdamW8bit, Optimizer::Lion8bit),
                                 Values(DType::fp32, DType::bf16)));

class ShardBlocks : public testing::TestWithParam<std::tuple<Optimizer, StatePolicy>> {};

TEST_P(ShardBlocks, LayoutsWhoseBordersAreBlockMultiplesLoadEachOtherExactly) {
  const auto [optimizer, policy] = GetParam();
  const Model model{.name = "blocks",
                    .parameters = {{.name = "m.a", .shape = {32, 512}},
                                   {.name = "m.b", .shape = {8192}},
                                   {.name = "n.small", .shape = {8, 16}}}};
  std::vector<PlanOptions> layouts = {{.topology = Topology::single},
                                      {.topology = Topology::fsdp2, .world_size = 2},
                                      {.topology = Topology::fsdp2, .world_size = 4},
                                      {.topology = Topology::hsdp, .world_size = 4, .replicas = 2}};
  // Whole units of blocks only: "n.small" is a unit of its own.
  layouts.push_back({.topology = Topology::fsdp1,
                     .world_size = 2,
                     .wrapping = {.policy = WrapPolicy::per_module, .units = {}}});
  carry_over_all(model, awkward_config(optimizer, DType::fp32, policy), layouts, 5);
}

INSTANTIATE_TEST_SUITE_P(All, ShardBlocks,
                         Combine(Values(Optimizer::AdamW8bit, Optimizer::Lion8bit),
                                 Values(StatePolicy::local, StatePolicy::global)));

TEST(Fp32State, IsCarriedOverBetweenAnyLayoutsUnderEveryPolicy) {
  for (const StatePolicy policy : all_state_policies()) {
    StepConfig config = awkward_config(Optimizer::AdamW, DType::fp32, policy);
    config.subject = Subject::native;
    carry_over_all(awkward_model(), config,
                   policy == StatePolicy::global ? state_layouts() : few_layouts(), 1);
    // 8-bit optimizers below the threshold.
    config = awkward_config(Optimizer::AdamW8bit, DType::bf16, policy);
    config.min_8bit_size = 1'000'000;
    carry_over_all(awkward_model(), config, few_layouts(), 5);
  }
}

TEST(Fp32State, OfLibtorchIsCarriedOverExactly) {
  // Right after the load: libtorch's loops round tails differently from vectors, so later steps
  // depend on where a shard starts.
  const StepConfig config = awkward_config(Optimizer::AdamW, DType::fp32, StatePolicy::global);
  const Model model = awkward_model();
  for (const PlanOptions& from : few_layouts()) {
    const TempFolder folder;
    const Held saved = hold(model, from, config, [&](StateRank& rank) {
      rank.step(5);
      rank.save(folder.path());
    });
    for (const PlanOptions& to : few_layouts()) {
      EXPECT_EQ(hold(model, to, config,
                     [&](StateRank& rank) { load_over_other_steps(rank, folder.path()); }),
                saved)
          << label(from, to);
    }
  }
}

/// What load_state says on every rank of a world, which must be the same; checks that nothing
/// changed on any.
std::string refusal(const Model& model, const PlanOptions& options, const StepConfig& config,
                    const std::string& folder) {
  const ShardPlan plan = ShardPlan::make(model, options);
  std::vector<std::string> texts(static_cast<std::size_t>(options.world_size));
  ThreadWorld(options.world_size).run([&](Communicator& communicator) {
    StateRank rank(model, plan, config, communicator);
    rank.step(3);
    const auto before = raw(rank);
    texts[static_cast<std::size_t>(communicator.rank())] = error_text([&] { rank.load(folder); });
    EXPECT_EQ(raw(rank), before) << "rank " << communicator.rank();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts.front());
  return texts.front();
}

void save(const Model& model, const PlanOptions& options, const StepConfig& config,
          const std::string& folder) {
  hold(model, options, config, [&](StateRank& rank) {
    rank.step(5);
    rank.save(folder);
  });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ShardBlocks, ALayoutWhoseBordersCutTheOthersBlocksIsRefusedWithBothNamed) {
  const Model model = state_model_of(4097);
  for (const StatePolicy policy : {StatePolicy::local, StatePolicy::global}) {
    for (const Optimizer optimizer : {Optimizer::AdamW8bit, Optimizer::Lion8bit}) {
      const StepConfig config = awkward_config(optimizer, DType::fp32, policy);
      const TempFolder folder;
      save(model, {.topology = Topology::fsdp2, .world_size = 2}, config, folder.path());
      std::string text =
          refusal(model, {.topology = Topology::fsdp2, .world_size = 3}, config, folder.path());
      EXPECT_TRUE(has(text, "fsdp2 on 2 ranks")) << text;
      EXPECT_TRUE(has(text, "fsdp2 on 3 ranks")) << text;
      EXPECT_TRUE(has(text, "256")) << text;
      text = refusal(model, {.topology = Topology::ddp, .world_size = 2}, config, folder.path());
      EXPECT_TRUE(has(text, "fsdp2 on 2 ranks")) << text;
      EXPECT_TRUE(has(text, "ddp on 2 ranks")) << text;
    }
  }
}

TEST(ShardBlocks, AWrappingThatMovesTheBlocksIsRefusedWithBothNamed) {
  const StepConfig config = awkward_config(Optimizer::AdamW8bit, DType::fp32, StatePolicy::global);
  const auto wrapped = [](WrapPolicy policy) {
    return PlanOptions{
        .topology = Topology::fsdp1, .world_size = 2, .wrapping = {.policy = policy, .units = {}}};
  };
  const TempFolder folder;
  save(awkward_model(), wrapped(WrapPolicy::per_module), config, folder.path());
  const std::string text =
      refusal(awkward_model(), wrapped(WrapPolicy::whole_model), config, folder.path());
  EXPECT_TRUE(has(text, "fsdp1 (per-module) on 2 ranks")) << text;
  EXPECT_TRUE(has(text, "fsdp1 (whole-model) on 2 ranks")) << text;
}

TEST(ShardBlocks, AnotherStatePrecisionIsRefused) {
  // 2000 elements: 8-bit on one rank, 500 and FP32 on four.
  const StepConfig config = awkward_config(Optimizer::AdamW8bit, DType::fp32, StatePolicy::local);
  const TempFolder folder;
  save(state_model_of(2000), {.topology = Topology::fsdp2, .world_size = 1}, config, folder.path());
  const std::string text = refusal(
      state_model_of(2000), {.topology = Topology::fsdp2, .world_size = 4}, config, folder.path());
  EXPECT_TRUE(has(text, "8-bit in the saved state and FP32 here")) << text;
}

TEST(Refusal, NamesWhatDiffers) {
  const Model model = awkward_model();
  const StepConfig config =
      awkward_config(Optimizer::AdamW8bit, DType::fp32, StatePolicy::original);
  const PlanOptions options{.topology = Topology::fsdp2, .world_size = 2};
  const TempFolder folder;
  save(model, options, config, folder.path());
  const auto expect = [&](const Model& m, const StepConfig& c, const std::string& part) {
    const std::string text = refusal(m, options, c, folder.path());
    EXPECT_TRUE(has(text, part)) << text;
    EXPECT_TRUE(has(text, "manifest.json")) << text;
  };
  Model other = model;
  other.parameters[2].shape = {4098};
  expect(other, config, "parameter 2 is \"n.c\" of shape \"[4097]\" in it and \"n.c\" of shape");
  other = model;
  other.parameters[3].name = "n.tiny";
  expect(other, config, "\"n.small\"");
  other = model;
  other.parameters.pop_back();
  expect(other, config, "it has 7 parameters, this one 6");
  StepConfig changed = config;
  changed.optimizer = Optimizer::Lion8bit;
  expect(model, changed, "the optimizer \"AdamW8bit\", this run \"Lion8bit\"");
  changed = config;
  changed.dtype = DType::bf16;
  expect(model, changed, "the data type \"fp32\", this run \"bf16\"");
  changed = config;
  changed.state_policy = StatePolicy::global;
  expect(model, changed, "the state policy \"original\", this run \"global\"");
}

/// B9: a has gradients, b none, c is frozen.
Model partly_stepped() {
  return {.name = "partly",
          .parameters = {{.name = "a", .shape = {8192}},
                         {.name = "b", .shape = {8192}, .has_gradient = false},
                         {.name = "c", .shape = {8192}, .requires_grad = false}}};
}

TEST(NoGradient, ParametersWithoutGradientKeepTheirValueAndCarryNoState) {
  const Model model = partly_stepped();
  const StepConfig config =
      awkward_config(Optimizer::AdamW8bit, DType::fp32, StatePolicy::original);
  const TempFolder folder;
  const auto set_unstepped = [](StateRank& rank, float value) {
    for (const LocalView& view : rank.optimizer->local_views()) {
      if (view.grad == nullptr) std::fill_n(static_cast<float*>(view.param), view.numel, value);
    }
  };
  const Held saved =
      hold(model, {.topology = Topology::fsdp2, .world_size = 2}, config, [&](StateRank& rank) {
        set_unstepped(rank, 1.5F);
        rank.step(5);
        rank.save(folder.path());
      });
  for (const PlanOptions& to : few_layouts()) {
    if (to.topology == Topology::fsdp1) continue;  // one unit of stepped and frozen is refused
    EXPECT_EQ(hold(model, to, config,
                   [&](StateRank& rank) {
                     set_unstepped(rank, 7);
                     rank.load(folder.path());
                     EXPECT_EQ(rank.optimizer->shards().front().ranges.front().parameter, 0U);
                     EXPECT_EQ(rank.optimizer->shards().back().ranges.front().parameter, 0U);
                   }),
              saved)
        << layout_name(to);
  }
}

TEST(NoGradient, AFirstGradientAfterTheLoadStartsAtStepOne) {
  const StepConfig config =
      awkward_config(Optimizer::AdamW8bit, DType::fp32, StatePolicy::original);
  Model later = partly_stepped();
  later.parameters[1].has_gradient = true;
  for (const std::int64_t world_size : {2, 3}) {
    const TempFolder folder;
    const Held saved = hold(partly_stepped(), {.topology = Topology::fsdp2, .world_size = 2},
                            config, [&](StateRank& rank) {
                              rank.step(5);
                              rank.save(folder.path());
                            });
    const Held loaded = hold(later, {.topology = Topology::fsdp2, .world_size = world_size}, config,
                             [&](StateRank& rank) { load_over_other_steps(rank, folder.path()); });
    EXPECT_EQ(loaded.at(0), saved.at(0));
    EXPECT_EQ(loaded.at(1), saved.at(1)) << "b: its value, no state, step 0";
    const Held stepped = hold(later, {.topology = Topology::fsdp2, .world_size = world_size},
                              config, [&](StateRank& rank) {
                                load_over_other_steps(rank, folder.path());
                                rank.step(1);
                              });
    EXPECT_EQ(stepped.at(0).front()[5], 6U);
    EXPECT_EQ(stepped.at(1).front()[5], 1U);
  }
}

TEST(NoGradient, StateThatWouldBeLostIsRefused) {
  const StepConfig config =
      awkward_config(Optimizer::AdamW8bit, DType::fp32, StatePolicy::original);
  const PlanOptions options{.topology = Topology::fsdp2, .world_size = 2};
  const TempFolder folder;
  save(partly_stepped(), options, config, folder.path());
  Model frozen = partly_stepped();
  frozen.parameters[0].requires_grad = false;
  frozen.parameters[1].has_gradient = true;
  const std::string text = refusal(frozen, options, config, folder.path());
  EXPECT_TRUE(has(text, "would lose it")) << text;
  EXPECT_TRUE(has(text, "parameter a")) << text;
}

TEST(NoGradient, OneStepCountCannotServeTwoParametersAtDifferentSteps) {
  StepConfig config = awkward_config(Optimizer::AdamW, DType::fp32, StatePolicy::global);
  Model model{.name = "two",
              .parameters = {{.name = "a", .shape = {600}},
                             {.name = "b", .shape = {600}, .has_gradient = false}}};
  const TempFolder folder;
  save(model, {.topology = Topology::fsdp2, .world_size = 2}, config, folder.path());
  const std::string text = refusal(model,
                                   {.topology = Topology::fsdp1,
                                    .world_size = 1,
                                    .wrapping = {.policy = WrapPolicy::whole_model, .units = {}}},
                                   config, folder.path());
  EXPECT_TRUE(has(text, "step 0")) << text;
  EXPECT_TRUE(has(text, "step 5")) << text;
}

TEST(SavedState, OfAnEmptyShardAndAUserListOfUnitsLoads) {
  Model model{.name = "thin",
              .parameters = {{.name = "a", .shape = {2, 700}}, {.name = "b", .shape = {18, 64}}}};
  const StepConfig config = awkward_config(Optimizer::Lion8bit, DType::bf16, StatePolicy::original);
  const std::vector<PlanOptions> layouts = {
      {.topology = Topology::fsdp2, .world_size = 8},
      {.topology = Topology::fsdp1,
       .world_size = 3,
       .wrapping = {.policy = WrapPolicy::list, .units = {{"b", "a"}}}}};
  carry_over_all(model, config, layouts, 5);
}

TEST(SavedState, ReplacesTheOneBeforeAndLeavesNoFilesOfIt) {
  const StepConfig config = awkward_config(Optimizer::Lion8bit, DType::fp32, StatePolicy::original);
  const Model model = state_model_of(4097);
  const TempFolder folder;
  save(model, {.topology = Topology::fsdp2, .world_size = 4}, config, folder.path());
  const Held second =
      hold(model, {.topology = Topology::fsdp2, .world_size = 2}, config, [&](StateRank& rank) {
        rank.step(7);
        rank.save(folder.path());
      });
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 3U) << "two ranks and the manifest";
  EXPECT_EQ(hold(model, {.topology = Topology::single}, config,
                 [&](StateRank& rank) { rank.load(folder.path()); }),
            second);
}

TEST(SavedState, RanksThatDisagreeOnWhatTheySaveAllStopWithTheDifference) {
  const Model model = state_model_of(4097);
  const StepConfig mine = awkward_config(Optimizer::Lion8bit, DType::fp32, StatePolicy::original);
  StepConfig other = mine;
  other.hyperparameters.learning_rate = 0.5;
  const ShardPlan plan = ShardPlan::make(model, Topology::fsdp2, 2);
  const TempFolder folder;
  ThreadWorld(2).run([&](Communicator& communicator) {
    StateRank rank(model, plan, communicator.rank() == 1 ? other : mine, communicator);
    const std::string text = error_text([&] { rank.save(folder.path()); });
    EXPECT_TRUE(has(text, "learning_rate") && has(text, "rank 1")) << text;
  });
  EXPECT_FALSE(std::filesystem::exists(folder.path()));
}

TEST(StateReadersChunks, AreCheckedOnBothSidesOfTheirBorders) {
  // More than one chunk an array: 300,000 elements of fp32 parameter and of codes.
  const StepConfig config =
      awkward_config(Optimizer::AdamW8bit, DType::fp32, StatePolicy::original);
  carry_over_all(state_model_of(300'001), config,
                 {{.topology = Topology::fsdp2, .world_size = 1},
                  {.topology = Topology::fsdp2, .world_size = 3}},
                 1);
}

}  // namespace
}  // namespace stepscope::topologies
