// Purpose: what load_model and ShardPlan make of their input, as JSON for the tests in Python.
//
// Usage:  shard_plan_dump MODEL [TOPOLOGY WORLD_SIZE]

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "core/parse.h"
#include "core/program.h"
#include "topologies/load_model.h"
#include "topologies/shard_plan.h"

namespace stepscope::topologies {
namespace {

nlohmann::json parameters_of(const Model& model) {
  nlohmann::json list = nlohmann::json::array();
  for (const Parameter& p : model.parameters) {
    list.push_back({{"name", p.name},
                    {"shape", p.shape},
                    {"dtype", dtype_name(p.dtype)},
                    {"is_stepped", is_stepped(p)},
                    {"tied_to", p.tied_to}});
  }
  return list;
}

nlohmann::json shards_of(const Model& model, const ShardPlan& plan, std::int64_t rank) {
  nlohmann::json list = nlohmann::json::array();
  for (const LocalShard& shard : plan.local_shards(rank)) {
    list.push_back({{"parameter", model.parameters[shard.parameter].name},
                    {"row_offset", shard.row_offset},
                    {"rows", shard.rows},
                    {"offset", shard.offset},
                    {"numel", shard.numel},
                    {"padded_numel", shard.padded_numel}});
  }
  return list;
}

int run(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    throw Error("wrong number of arguments", "shard_plan_dump MODEL [TOPOLOGY WORLD_SIZE]");
  }
  const Model model = load_model(argv[1]);
  nlohmann::json out = {{"name", model.name},
                        {"numel", model.numel()},
                        {"parameters", parameters_of(model)},
                        {"skipped", model.skipped}};
  if (argc == 4) {
    const std::int64_t world_size = parse_int("WORLD_SIZE", argv[3], 1, 1024);
    const ShardPlan plan = ShardPlan::make(model, parse_topology(argv[2]), world_size);
    out["ranks"] = nlohmann::json::array();
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
      out["ranks"].push_back(shards_of(model, plan, rank));
    }
  }
  std::printf("%s\n", out.dump().c_str());
  return kFine;
}

}  // namespace
}  // namespace stepscope::topologies

int main(int argc, char** argv) {
  return stepscope::run_program("shard_plan_dump",
                                [&] { return stepscope::topologies::run(argc, argv); });
}
