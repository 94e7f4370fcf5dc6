#include "topologies/unit_traffic.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "topologies/gradient_bucket_plan.h"
#include "topologies/load_model.h"

namespace stepscope::topologies {
namespace {

Model named(std::vector<std::string> names) {
  Model model{.name = "named", .parameters = {}};
  for (std::string& name : names)
    model.parameters.push_back({.name = std::move(name), .shape = {8}});
  return model;
}

/// The units of `model` as text: the root's in brackets.
std::string units_text(const Model& model, const PlanOptions& options) {
  const ShardPlan plan = ShardPlan::make(model, options);
  std::string text;
  for (const TrafficUnit& unit : traffic_units(model, plan)) {
    text += unit.root ? "[" : "(";
    for (const std::size_t tensor : unit.tensors) {
      for (const std::size_t p : plan.parameters(tensor)) text += model.parameters[p].name + " ";
    }
    text.back() = unit.root ? ']' : ')';
  }
  return text;
}

TEST(UnitTraffic, TheFirstNumberInANameEndsTheUnitAndTheRootIsTheRest) {
  const Model model = named({"embed.w", "h.0.a", "h.10.experts.1.b", "h.10.experts.2.b", "h.0.c",
                             "h1.2x.d", "norm", "7"});
  EXPECT_EQ(units_text(model, {.topology = Topology::fsdp2, .world_size = 2}),
            "[embed.w h1.2x.d norm 7](h.0.a h.0.c)(h.10.experts.1.b h.10.experts.2.b)");
}

TEST(UnitTraffic, TheRootOfFsdp1IsTheOneUnitThatSpansTheModel) {
  const Model model = named({"net.embed.w", "net.h.0.a", "net.h.0.b", "net.head.w"});
  const auto wrapped = [&](Wrapping wrapping) {
    return units_text(
        model, {.topology = Topology::fsdp1, .world_size = 2, .wrapping = std::move(wrapping)});
  };
  EXPECT_EQ(wrapped({.policy = WrapPolicy::whole_model}),
            "[net.embed.w net.h.0.a net.h.0.b net.head.w]");
  EXPECT_EQ(
      wrapped({.policy = WrapPolicy::list, .units = {{"net.embed", "net.head"}, {"net.h.0"}}}),
      "[net.embed.w net.head.w](net.h.0.a net.h.0.b)");
  EXPECT_EQ(wrapped({.policy = WrapPolicy::per_module}),
            "(net.embed.w)(net.h.0.a net.h.0.b)(net.head.w)");
  // Two that span it: which is the root cannot be known.
  EXPECT_EQ(wrapped({.policy = WrapPolicy::list,
                     .units = {{"net.embed", "net.h.0.a"}, {"net.h.0.b", "net.head"}}}),
            "(net.embed.w net.h.0.a)(net.h.0.b net.head.w)");
}

TEST(UnitTraffic, UnitsWithoutElementsOrWithoutGradientsMakeNoCollectiveForThem) {
  Model model = named({"0.empty", "1.frozen", "2.trained"});
  model.parameters[0].shape = {4, 0};
  model.parameters[1].requires_grad = false;
  const ShardPlan plan =
      ShardPlan::make(model, {.topology = Topology::hsdp, .world_size = 6, .replicas = 2});
  const UnitTraffic traffic = plan_unit_traffic(model, plan);
  // 8 rows on 3 shards: 3 a rank, of 4 bytes.
  EXPECT_EQ(traffic.all_gather.calls, 4);
  EXPECT_EQ(traffic.all_gather.bytes, 4 * 12);
  EXPECT_EQ(traffic.reduce_scatter.calls, 1);
  EXPECT_EQ(traffic.reduce_scatter.bytes, 3 * 12);
  EXPECT_EQ(traffic.all_reduce.calls, 1);
  EXPECT_EQ(traffic.all_reduce.bytes, 12);
}

TEST(UnitTraffic, AMillionRanksOfLlama405bAreCountedIn64Bits) {
  const Model model = load_model("llama-3.1-405b");
  const ShardPlan plan = ShardPlan::make(model, Topology::fsdp2, 1 << 20);
  const UnitTraffic traffic = plan_unit_traffic(model, plan);
  EXPECT_EQ(traffic.all_gather.calls, 1 + 2 * 126);
  EXPECT_EQ(traffic.reduce_scatter.calls, 127);
  std::int64_t chunk = 0;
  for (std::size_t unit = 0; unit < plan.unit_count(); ++unit) {
    chunk += plan.local_tensor(unit, 0).padded_numel * 2;
  }
  EXPECT_EQ(traffic.reduce_scatter.bytes, chunk << 20);
}

TEST(UnitTraffic, BytesThatDoNotFitIn64BitsAreAnErrorAndNotAWrongNumber) {
  const Model model = named({"w"});
  const ShardPlan plan = ShardPlan::make(model, Topology::fsdp2, std::int64_t{1} << 61);
  const std::string found = error_text([&] { plan_unit_traffic(model, plan); });
  EXPECT_NE(found.find("do not fit in 64 bits"), std::string::npos) << found;
}

TEST(UnitTraffic, BucketsFillFromTheEndAndSkipWhatHasNoGradient) {
  const std::int64_t mib = 1 << 20;
  const std::vector<std::int64_t> bytes = {3 * mib, 24 * mib, 0, mib - 1, 1};
  EXPECT_EQ(plan_gradient_buckets(bytes), (std::vector<std::size_t>{1, 1, 0, 0, 0}));
}

}  // namespace
}  // namespace stepscope::topologies
