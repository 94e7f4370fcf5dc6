#include "tracer/expected_plan.h"

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "core/durable_file.h"
#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"

namespace stepscope::tracer {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr const char* kKind = "stepscope shard plan";
constexpr const char* kAdvice = "make it with plan_state --plan-out";

constexpr std::array kCollectives = {CollectiveKind::all_gather,  CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_reduce,  CollectiveKind::all_to_all,
                                     CollectiveKind::broadcast,   CollectiveKind::barrier,
                                     CollectiveKind::send_receive};

/// A plan of a thousand ranks with a thousand tensors each has less than a tenth of it.
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;

/// Deeper than a plan is. The parser takes any depth, and whoever walks over it would not.
bool refuse_depth(int depth, nlohmann::json::parse_event_t /*event*/, nlohmann::json& /*value*/) {
  constexpr int kDeepest = 8;
  if (depth > kDeepest) throw Error("the plan is nested deeper than any plan");
  return true;
}

/// The whole number under `key`, at least 0.
std::int64_t count(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || found->get<std::int64_t>() < 0 ||
      (found->is_number_unsigned() && found->get<std::uint64_t>() > INT64_MAX)) {
    throw Error(std::string("\"") + key + "\" is not a whole number from 0");
  }
  return found->get<std::int64_t>();
}

const nlohmann::json& list(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) {
    throw Error(std::string("\"") + key + "\" is not a list");
  }
  return *found;
}

void require_object(const nlohmann::json& json) {
  if (!json.is_object()) {
    throw Error(std::string("an object is expected where ") + json.type_name() + " stands");
  }
}

std::string text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    throw Error(std::string("\"") + key + "\" is not a text");
  }
  return found->get<std::string>();
}

ExpectedPlan from_json(const nlohmann::json& json) {
  require_object(json);
  if (text(json, "kind") != kKind) throw Error("this is no shard plan");
  if (const std::int64_t version = count(json, "schema_version"); version != kVersion) {
    throw Error("schema_version is " + std::to_string(version) + ", not " +
                std::to_string(kVersion));
  }
  ExpectedPlan plan;
  plan.world_size = count(json, "world_size");
  for (const auto& name : list(json, "collectives")) {
    if (!name.is_string()) throw Error("\"collectives\" holds something that is no name");
    plan.collectives.push_back(parse_collective(name.get<std::string>()));
  }
  for (const auto& entry : list(json, "ranks")) {
    require_object(entry);
    const std::int64_t number = count(entry, "rank");
    const auto [place, is_new] = plan.ranks.try_emplace(number);
    if (!is_new) throw Error("rank " + std::to_string(number) + " is there twice");
    if (number >= plan.world_size) {
      throw Error("rank " + std::to_string(number) + " is beyond the world size");
    }
    for (const auto& tensor : list(entry, "tensors")) {
      require_object(tensor);
      place->second.tensors.push_back(
          {.name = text(tensor, "name"), .n = count(tensor, "n"), .whole = count(tensor, "whole")});
    }
  }
  return plan;
}

}  // namespace

CollectiveKind parse_collective(std::string_view name) {
  std::string names;
  for (const CollectiveKind kind : kCollectives) {
    if (collective_kind_name(kind) == name) return kind;
    names += (names.empty() ? "" : ", ") + std::string(collective_kind_name(kind));
  }
  throw Error("\"" + std::string(name) + "\" is no collective", "give one of " + names);
}

void write_plan_file(const ExpectedPlan& plan, const std::filesystem::path& path) {
  nlohmann::ordered_json json = {{"schema_version", kVersion},
                                 {"kind", kKind},
                                 {"world_size", plan.world_size},
                                 {"collectives", nlohmann::json::array()},
                                 {"ranks", nlohmann::json::array()}};
  for (const CollectiveKind kind : plan.collectives) {
    json["collectives"].push_back(collective_kind_name(kind));
  }
  for (const auto& [number, rank] : plan.ranks) {
    nlohmann::ordered_json tensors = nlohmann::json::array();
    for (const ExpectedTensor& tensor : rank.tensors) {
      tensors.push_back({{"name", tensor.name}, {"n", tensor.n}, {"whole", tensor.whole}});
    }
    json["ranks"].push_back({{"rank", number}, {"tensors", std::move(tensors)}});
  }
  const std::string text =
      json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  DurableFile out(path.string());
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

ExpectedPlan read_plan_file(const std::filesystem::path& path) {
  InputFile file(path.string());
  if (file.size() > kMostBytes) throw Error("is too large for a plan", kAdvice, {.file = path});
  const std::string bytes = file.read(file.size());
  try {
    return from_json(nlohmann::json::parse(bytes, refuse_depth));
  } catch (const nlohmann::json::exception& error) {
    // What it says may hold the file's text, of any length.
    throw Error("the plan is no JSON: " + printable(error.what(), 200), kAdvice, {.file = path});
  } catch (const Error& error) {
    throw Error(error.what_failed(), kAdvice, {.file = path});
  }
}

}  // namespace stepscope::tracer
