#include "topologies/model_json.h"

#include <cstddef>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "topologies/strict_json.h"

namespace stepscope::topologies {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxFileBytes = 100'000'000;

void refuse_unknown_keys(const json& object, std::initializer_list<std::string_view> known,
                         const Where& where) {
  for (const auto& [key, value] : object.items()) {
    bool is_known = false;
    std::string list;
    for (const std::string_view name : known) {
      is_known = is_known || key == name;
      list += (list.empty() ? "" : ", ") + std::string(name);
    }
    if (!is_known) throw Error("unknown key " + printable(key), "known keys: " + list, where);
  }
}

std::string string_at(const json& object, const char* key, const std::string& what,
                      const Where& where) {
  const auto found = object.find(key);
  if (found == object.end()) throw Error(what + " has no \"" + key + "\"", "add it", where);
  if (!found->is_string()) {
    throw Error(what + " has a \"" + key + "\" that is no string", "put it in quotes", where);
  }
  return found->get<std::string>();
}

bool flag_at(const json& object, const char* key, const Where& where) {
  const auto found = object.find(key);
  if (found == object.end()) return true;
  if (!found->is_boolean()) {
    throw Error(std::string("\"") + key + "\" is neither true nor false", "use one of them", where);
  }
  return found->get<bool>();
}

Parameter read_parameter(const json& entry, std::size_t index, const std::string& file) {
  const std::string place = "parameters[" + std::to_string(index) + "]";
  if (!entry.is_object()) {
    throw Error(place + " is no object", R"(write {"name": "w", "shape": [2, 3]})", {.file = file});
  }
  Parameter parameter;
  parameter.name = string_at(entry, "name", place, {.file = file});
  validate_name(parameter.name, file);

  const Where where{.parameter = parameter.name, .file = file};
  refuse_unknown_keys(entry, {"name", "shape", "dtype", "requires_grad", "has_gradient", "tied_to"},
                      where);
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) {
    throw Error("it has no list \"shape\"", "add it, e.g. \"shape\": [2, 3]", where);
  }
  for (const json& size : *shape) {
    parameter.shape.push_back(non_negative_integer(size, "a dimension", where));
  }
  if (entry.contains("dtype")) {
    const std::string dtype = string_at(entry, "dtype", "it", where);
    try {
      parameter.dtype = parse_dtype(dtype);
    } catch (const Error& error) {
      throw Error(error.what_failed(), error.advice(), where);
    }
  }
  parameter.requires_grad = flag_at(entry, "requires_grad", where);
  parameter.has_gradient = flag_at(entry, "has_gradient", where);
  if (entry.contains("tied_to")) parameter.tied_to = string_at(entry, "tied_to", "it", where);
  return parameter;
}

}  // namespace

Model model_from_json(std::string_view text, const std::string& file) {
  const Where where{.file = file};
  // A parameter list in an object, its entries, and their shapes: four levels.
  const json root = parse_strict_json(text, file, {.max_depth = 4});
  Model model{.name = file_stem(file), .parameters = {}};
  const json* list = &root;
  if (root.is_object()) {
    refuse_unknown_keys(root, {"name", "parameters"}, where);
    if (root.contains("name")) model.name = string_at(root, "name", "the model", where);
    const auto found = root.find("parameters");
    if (found == root.end()) throw Error("it has no \"parameters\"", "add the list", where);
    list = &*found;
  }
  if (!list->is_array()) {
    throw Error("the parameters are no list", R"(write [{"name": "w", "shape": [2, 3]}, ...])",
                where);
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    model.parameters.push_back(read_parameter((*list)[i], i, file));
  }
  validate(model, file);
  return model;
}

Model read_model_json(const std::string& path) {
  InputFile file(path);
  if (file.size() > kMaxFileBytes) {
    throw Error("it is " + std::to_string(file.size()) + " bytes long",
                "a description of a model may have 100 MB", {.file = path});
  }
  return model_from_json(file.read(file.size()), path);
}

}  // namespace stepscope::topologies
