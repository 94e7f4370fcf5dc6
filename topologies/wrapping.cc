#include "topologies/wrapping.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "topologies/strict_json.h"

namespace stepscope::topologies {
namespace {

using Units = std::vector<std::vector<std::size_t>>;

constexpr std::int64_t kMaxFileBytes = 100'000'000;

constexpr std::array<std::pair<std::string_view, WrapPolicy>, 4> kPolicies = {{
    {"per-parameter", WrapPolicy::per_parameter},
    {"per-module", WrapPolicy::per_module},
    {"whole-model", WrapPolicy::whole_model},
    {"list", WrapPolicy::list},
}};

std::string_view module_of(std::string_view parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : parameter.substr(0, dot);
}

/// Which unit of the list names `parameter`, by its own name or by that of a module it is below.
std::size_t listed_unit(const Parameter& parameter,
                        const std::unordered_map<std::string_view, std::size_t>& unit_of_name,
                        std::vector<bool>& unit_used,
                        std::unordered_map<std::string_view, bool>& name_used) {
  const Where where{.parameter = parameter.name};
  std::optional<std::size_t> found;
  std::string_view name = parameter.name;
  while (!name.empty()) {
    if (const auto entry = unit_of_name.find(name); entry != unit_of_name.end()) {
      name_used[entry->first] = true;
      if (found && *found != entry->second) {
        throw Error("unit " + std::to_string(std::min(*found, entry->second)) + " and unit " +
                        std::to_string(std::max(*found, entry->second)) +
                        " of the wrapping both name it",
                    "name every parameter in one unit", where);
      }
      found = entry->second;
    }
    name = module_of(name);
  }
  if (!found) {
    throw Error("no unit of the wrapping names it", "add it, or its module, to a unit", where);
  }
  unit_used[*found] = true;
  return *found;
}

/// For every parameter, tied ones included, its unit in the list.
std::vector<std::size_t> listed_units(const Model& model,
                                      const std::vector<std::vector<std::string>>& list) {
  std::unordered_map<std::string_view, std::size_t> unit_of_name;
  std::unordered_map<std::string_view, bool> name_used;
  for (std::size_t unit = 0; unit < list.size(); ++unit) {
    for (const std::string& name : list[unit]) {
      const auto [entry, is_new] = unit_of_name.emplace(name, unit);
      if (!is_new) {
        throw Error("the wrapping names " + printable(name) + " twice, in unit " +
                        std::to_string(entry->second) + " and in unit " + std::to_string(unit),
                    "name it once");
      }
    }
  }
  std::vector<bool> unit_used(list.size(), false);
  std::vector<std::size_t> units;
  units.reserve(model.parameters.size());
  for (const Parameter& parameter : model.parameters) {
    units.push_back(listed_unit(parameter, unit_of_name, unit_used, name_used));
  }
  for (std::size_t unit = 0; unit < list.size(); ++unit) {
    for (const std::string& name : list[unit]) {
      if (!name_used[name]) {
        throw Error("unit " + std::to_string(unit) + " of the wrapping names " + printable(name) +
                        ", and the model has no parameter or module of that name",
                    "use names as the model has them");
      }
    }
    if (!unit_used[unit]) {
      throw Error("unit " + std::to_string(unit) + " of the wrapping is empty", "leave it out");
    }
  }
  return units;
}

void check_ties(const Model& model, const std::vector<std::size_t>& unit_of) {
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) index[model.parameters[i].name] = i;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = model.parameters[i];
    if (parameter.tied_to.empty()) continue;
    const std::size_t owner = index.at(parameter.tied_to);
    if (unit_of[i] == unit_of[owner]) continue;
    throw Error(
        "it is tied to " + parameter.tied_to + ", and the wrapping puts it in unit " +
            std::to_string(unit_of[i]) + " and its owner in unit " + std::to_string(unit_of[owner]),
        "put both in one unit: two units would train two copies", {.parameter = parameter.name});
  }
}

/// What _validate_tensors_to_flatten, _init_shard_metadata and _verify_managed_params of PyTorch
/// 2.13 refuse (torch/distributed/fsdp/_flat_param.py, _init_utils.py).
void check_flat(const Model& model, const std::vector<std::size_t>& unit) {
  const Parameter& first = model.parameters[unit.front()];
  bool has_elements = false;
  for (const std::size_t i : unit) {
    const Parameter& parameter = model.parameters[i];
    const Where where{.parameter = parameter.name};
    has_elements = has_elements || numel(parameter) > 0;
    if (parameter.shape.empty()) {
      throw Error("it is a scalar (shape ()), which fsdp1 cannot shard",
                  "give it shape (1,), or use topology single or ddp", where);
    }
    if (parameter.dtype != first.dtype) {
      throw Error("it is " + std::string(dtype_name(parameter.dtype)) + " and " + first.name +
                      " of the same fsdp1 unit is " + std::string(dtype_name(first.dtype)),
                  "a flat unit has one data type: wrap them apart", where);
    }
    if (parameter.requires_grad != first.requires_grad) {
      const std::string mine = parameter.requires_grad ? "trainable" : "frozen";
      const std::string other = first.requires_grad ? "trainable" : "frozen";
      throw Error(
          "it is " + mine + " and " + first.name + " of the same fsdp1 unit is " + other,
          "with use_orig_params=False a unit is trainable or frozen as a whole: wrap them apart",
          where);
    }
  }
  if (!has_elements) {
    throw Error("its fsdp1 unit has no elements, which PyTorch cannot flatten",
                "wrap it together with a parameter that has some", {.parameter = first.name});
  }
}

}  // namespace

std::string_view wrap_policy_name(WrapPolicy policy) {
  for (const auto& [name, known] : kPolicies) {
    if (policy == known) return name;
  }
  throw Error("a wrapping policy without a name");
}

Wrapping load_wrapping(const std::string& spec) {
  for (const auto& [name, policy] : kPolicies) {
    if (policy != WrapPolicy::list && spec == name) return {.policy = policy};
  }
  if (!spec.ends_with(".json")) {
    throw Error("unknown wrapping " + printable(spec),
                "use per-parameter, per-module, whole-model, or a .json file with a list of units");
  }
  InputFile file(spec);
  if (file.size() > kMaxFileBytes) {
    throw Error("the file is larger than " + std::to_string(kMaxFileBytes) + " bytes",
                "this is no list of units", {.file = spec});
  }
  const nlohmann::json root = parse_strict_json(file.read(file.size()), spec, {.max_depth = 2});
  const char* const advice = R"(write a list of units: [["embed"], ["layers.0", "layers.1"]])";
  if (!root.is_array()) throw Error("this is no list", advice, {.file = spec});
  Wrapping wrapping{.policy = WrapPolicy::list};
  for (const nlohmann::json& unit : root) {
    const std::string place = "unit " + std::to_string(wrapping.units.size());
    if (!unit.is_array()) throw Error(place + " is no list of names", advice, {.file = spec});
    wrapping.units.emplace_back();
    for (const nlohmann::json& name : unit) {
      if (!name.is_string()) {
        throw Error(place + " holds what is no string", advice, {.file = spec});
      }
      wrapping.units.back().push_back(name.get<std::string>());
    }
  }
  return wrapping;
}

std::vector<std::vector<std::size_t>> wrap(const Model& model, const Wrapping& wrapping) {
  std::vector<std::size_t> listed;
  if (wrapping.policy == WrapPolicy::list) {
    listed = listed_units(model, wrapping.units);
    check_ties(model, listed);
  }
  // A unit's key: equal keys, equal units.
  const auto key = [&](std::size_t i) -> std::string {
    switch (wrapping.policy) {
      case WrapPolicy::per_parameter:
        return model.parameters[i].name;
      case WrapPolicy::per_module:
        return std::string(module_of(model.parameters[i].name));
      case WrapPolicy::whole_model:
        return {};
      case WrapPolicy::list:
        return std::to_string(listed[i]);
    }
    throw Error("a wrapping policy without a rule");
  };
  Units units;
  std::unordered_map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    if (!model.parameters[i].tied_to.empty()) continue;
    const auto [entry, is_new] = place.emplace(key(i), units.size());
    if (is_new) units.emplace_back();
    units[entry->second].push_back(i);
  }
  for (const std::vector<std::size_t>& unit : units) check_flat(model, unit);
  return units;
}

}  // namespace stepscope::topologies
