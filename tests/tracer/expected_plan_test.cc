#include "tracer/expected_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tests/core/error_text.h"
#include "tests/core/temp_file.h"

namespace stepscope::tracer {
namespace {

using nlohmann::json;

constexpr std::string_view kBehind = "; make it with plan_state --plan-out";

json good() {
  return {{"schema_version", 1},
          {"kind", "stepscope shard plan"},
          {"world_size", 3},
          {"collectives", {"all-to-all"}},
          {"ranks",
           {{{"rank", 0}, {"tensors", {{{"name", "embed"}, {"n", 5}, {"whole", 9}}}}},
            {{"rank", 2}, {"tensors", json::array()}}}}};
}

ExpectedPlan read(const std::string& text) {
  const TempFile file("plan.json", text);
  return read_plan_file(file.path());
}

/// What is said of a plan that `change` has made of a good one, without the file's name.
std::string refusal(const std::function<void(json&)>& change) {
  json plan = good();
  change(plan);
  const TempFile file("plan.json", plan.dump());
  const std::string text = error_text([&] { read_plan_file(file.path()); });
  const std::string before = file.path() + ": ";
  EXPECT_TRUE(text.starts_with(before) && text.ends_with(kBehind)) << text;
  if (!text.starts_with(before) || !text.ends_with(kBehind)) return text;
  return text.substr(before.size(), text.size() - before.size() - kBehind.size());
}

TEST(ExpectedPlan, IsReadAsItWasWritten) {
  const ExpectedPlan plan = read(good().dump());
  EXPECT_EQ(plan.world_size, 3);
  EXPECT_EQ(plan.collectives, std::vector{CollectiveKind::all_to_all});
  ASSERT_EQ(plan.ranks.size(), 2U);
  ASSERT_NE(plan.rank(0), nullptr);
  ASSERT_EQ(plan.rank(0)->tensors.size(), 1U);
  EXPECT_EQ(plan.rank(0)->tensors[0].name, "embed");
  EXPECT_EQ(plan.rank(0)->tensors[0].n, 5);
  EXPECT_EQ(plan.rank(0)->tensors[0].whole, 9);
  ASSERT_NE(plan.rank(2), nullptr);
  EXPECT_TRUE(plan.rank(2)->tensors.empty());
  EXPECT_EQ(plan.rank(1), nullptr);

  const TempFile again("again.json", "");
  write_plan_file(plan, again.path());
  const ExpectedPlan second = read_plan_file(again.path());
  EXPECT_EQ(second.collectives, plan.collectives);
  EXPECT_EQ(second.ranks.at(0).tensors[0].whole, 9);
  EXPECT_EQ(second.ranks.size(), 2U);
}

TEST(ExpectedPlan, HasEveryKindOfCollectiveByItsName) {
  ExpectedPlan plan;
  for (const char* name : {"all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast",
                           "barrier", "send-receive"}) {
    const CollectiveKind kind = parse_collective(name);
    EXPECT_EQ(collective_kind_name(kind), name);
    plan.collectives.push_back(kind);
  }
  const TempFile file("plan.json", "");
  write_plan_file(plan, file.path());
  EXPECT_EQ(read_plan_file(file.path()).collectives, plan.collectives);
  EXPECT_EQ(error_text([] { parse_collective("gossip"); }),
            "\"gossip\" is no collective; give one of all-gather, reduce-scatter, all-reduce, "
            "all-to-all, broadcast, barrier, send-receive");
}

TEST(ExpectedPlan, NamesThatAreNoUtf8AreWrittenAndReadAll) {
  ExpectedPlan plan;
  plan.ranks[0].tensors = {{.name = "\xff\xfe w", .n = 1, .whole = 1}};
  const TempFile file("plan.json", "");
  write_plan_file(plan, file.path());
  EXPECT_EQ(read_plan_file(file.path()).ranks.at(0).tensors[0].name, "\uFFFD\uFFFD w");
}

TEST(ExpectedPlan, SaysWhichPartIsWrong) {
  EXPECT_EQ(refusal([](json& plan) { plan["kind"] = "songs"; }), "this is no shard plan");
  EXPECT_EQ(refusal([](json& plan) { plan.erase("kind"); }), "\"kind\" is not a text");
  EXPECT_EQ(refusal([](json& plan) { plan["schema_version"] = 2; }), "schema_version is 2, not 1");
  EXPECT_EQ(refusal([](json& plan) { plan["collectives"] = 7; }), "\"collectives\" is not a list");
  EXPECT_EQ(refusal([](json& plan) { plan["collectives"] = {7}; }),
            "\"collectives\" holds something that is no name");
  EXPECT_TRUE(refusal([](json& plan) {
                plan["collectives"] = {"gossip"};
              }).starts_with("\"gossip\" is no collective"));
  EXPECT_EQ(refusal([](json& plan) { plan.erase("ranks"); }), "\"ranks\" is not a list");
  EXPECT_EQ(refusal([](json& plan) { plan["ranks"][0] = 1; }),
            "an object is expected where number stands");
  EXPECT_EQ(refusal([](json& plan) { plan["ranks"][1]["rank"] = 0; }), "rank 0 is there twice");
  EXPECT_EQ(refusal([](json& plan) { plan["ranks"][1]["rank"] = 3; }),
            "rank 3 is beyond the world size");
  EXPECT_EQ(refusal([](json& plan) { plan["ranks"][0]["tensors"] = json::object(); }),
            "\"tensors\" is not a list");
  EXPECT_EQ(refusal([](json& plan) { plan["ranks"][0]["tensors"][0] = "x"; }),
            "an object is expected where string stands");
  EXPECT_EQ(refusal([](json& plan) { plan["ranks"][0]["tensors"][0]["name"] = 5; }),
            "\"name\" is not a text");
  EXPECT_EQ(refusal([](json& plan) { plan = json::array(); }),
            "an object is expected where array stands");
}

TEST(ExpectedPlan, TakesNoCountThatIsNoWholeNumberFromZero) {
  for (const json& value :
       {json(-1), json(1.5), json("5"), json(true), json(), json::array(),
        json(std::uint64_t{1} << 63), json(std::uint64_t{18446744073709551615U}), json(1e300)}) {
    for (const char* key : {"n", "whole"}) {
      EXPECT_EQ(refusal([&](json& plan) { plan["ranks"][0]["tensors"][0][key] = value; }),
                std::string("\"") + key + "\" is not a whole number from 0")
          << value;
    }
    EXPECT_EQ(refusal([&](json& plan) { plan["ranks"][0]["rank"] = value; }),
              "\"rank\" is not a whole number from 0")
        << value;
    EXPECT_EQ(refusal([&](json& plan) { plan["world_size"] = value; }),
              "\"world_size\" is not a whole number from 0")
        << value;
  }
  json plan = good();
  plan["ranks"][0]["tensors"][0]["n"] = INT64_MAX;
  EXPECT_EQ(read(plan.dump()).ranks.at(0).tensors[0].n, INT64_MAX);
}

TEST(ExpectedPlan, RefusesWhatIsDeeperThanAPlanAndNothingLess) {
  const auto nested = [](int depth) {
    json plan = good();
    json value = 1;
    for (int i = 0; i < depth; ++i) value = json::array({value});
    plan["more"] = value;  // what readers do not know they leave alone
    return plan;
  };
  EXPECT_EQ(read(nested(7).dump()).world_size, 3);
  EXPECT_EQ(refusal([&](json& plan) { plan = nested(8); }),
            "the plan is nested deeper than any plan");
}

TEST(ExpectedPlan, SaysInOneShortLineThatItIsNoJson) {
  for (const std::string& text :
       {std::string(), std::string("no plan"), good().dump().substr(0, 60), good().dump() + "x",
        std::string("{\"kind\": NaN}"), std::string("\"\xff\""), std::string(1, '\0')}) {
    const TempFile file("plan.json", text);
    const std::string error = error_text([&] { read_plan_file(file.path()); });
    EXPECT_TRUE(error.starts_with(file.path() + ": the plan is no JSON: ")) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_LT(error.size(), 500U);
  }
}

TEST(ExpectedPlan, SaysWhereItCannotBeWritten) {
  const std::string error = error_text([] { write_plan_file({}, "/nowhere/plan.json"); });
  EXPECT_EQ(error,
            "/nowhere/plan.json.partial: cannot be created: No such file or directory; check the "
            "folder, its permissions and its disk");
}

}  // namespace
}  // namespace stepscope::tracer
