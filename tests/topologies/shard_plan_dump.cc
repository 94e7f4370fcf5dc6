// Purpose: what load_model and ShardPlan make of their input, as JSON for the tests in Python.
//
// Usage:  shard_plan_dump MODEL [TOPOLOGY WORLD_SIZE [REPLICAS [WRAPPING]]]

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

nlohmann::json tensors_of(const Model& model, const ShardPlan& plan, std::int64_t rank) {
  nlohmann::json list = nlohmann::json::array();
  for (const LocalTensor& tensor : plan.local_tensors(rank)) {
    nlohmann::json ranges = nlohmann::json::array();
    for (const Range& range : tensor.ranges) {
      ranges.push_back({{"parameter", model.parameters[range.parameter].name},
                        {"offset", range.offset},
                        {"numel", range.numel},
                        {"position", range.position}});
    }
    nlohmann::json names = nlohmann::json::array();
    for (const std::size_t i : plan.parameters(tensor.unit)) {
      names.push_back(model.parameters[i].name);
    }
    list.push_back({{"unit", names},
                    {"numel", tensor.numel},
                    {"padded_numel", tensor.padded_numel},
                    {"global_numel", tensor.global_numel},
                    {"stepped", tensor.stepped},
                    {"ranges", ranges}});
  }
  return list;
}

int run(int argc, char** argv) {
  if (argc != 2 && (argc < 4 || argc > 6)) {
    throw Error("wrong number of arguments",
                "shard_plan_dump MODEL [TOPOLOGY WORLD_SIZE [REPLICAS [WRAPPING]]]");
  }
  const Model model = load_model(argv[1]);
  nlohmann::json out = {{"name", model.name},
                        {"numel", model.numel()},
                        {"parameters", parameters_of(model)},
                        {"skipped", model.skipped}};
  if (argc >= 4) {
    PlanOptions options{.topology = parse_topology(argv[2]),
                        .world_size = parse_int("WORLD_SIZE", argv[3], 1, 1024)};
    if (argc >= 5) options.replicas = parse_int("REPLICAS", argv[4], 1, 1024);
    if (argc >= 6) options.wrapping = load_wrapping(argv[5]);
    const ShardPlan plan = ShardPlan::make(model, options);
    out["ranks"] = nlohmann::json::array();
    out["tensors"] = nlohmann::json::array();
    for (std::int64_t rank = 0; rank < options.world_size; ++rank) {
      out["tensors"].push_back(tensors_of(model, plan, rank));
      if (options.topology != Topology::fsdp1) {
        out["ranks"].push_back(shards_of(model, plan, rank));
      }
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
