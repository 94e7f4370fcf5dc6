#include "topologies/model.h"

#include <algorithm>
#include <unordered_map>

#include "core/error.h"
#include "core/printable.h"

namespace stepscope::topologies {
namespace {

void check_name(const std::string& kind, const std::string& name, const std::string& file) {
  if (name.empty()) {
    throw Error("a " + kind + " has an empty name", "give it one", {.file = file});
  }
  if (name.size() > kMaxNameBytes) {
    throw Error("the name " + printable(name) + " of a " + kind + " is " +
                    std::to_string(name.size()) + " bytes long",
                "use at most " + std::to_string(kMaxNameBytes) + " bytes", {.file = file});
  }
  if (!is_printable(name)) {
    throw Error("the name " + printable(name) + " of a " + kind +
                    " cannot be shown: it holds a control character or is not UTF-8",
                "rename it", {.file = file});
  }
}

void check_tie(const Parameter& parameter, const Parameter& owner, const Where& where) {
  if (!owner.tied_to.empty()) {  // the parameter itself, or a chain
    throw Error("it is tied to " + owner.name + ", which is tied itself",
                "name the one parameter that owns the storage", where);
  }
  if (owner.shape != parameter.shape || owner.dtype != parameter.dtype) {
    throw Error("it is tied to " + owner.name + ", whose shape or dtype differs",
                "tied parameters share one storage, so give both the same", where);
  }
}

}  // namespace

std::int64_t numel(const Parameter& parameter) {
  for (const std::int64_t size : parameter.shape) {
    if (size < 0) {
      throw Error("a dimension is " + std::to_string(size), "sizes cannot be negative",
                  {.parameter = parameter.name});
    }
  }
  if (std::find(parameter.shape.begin(), parameter.shape.end(), 0) != parameter.shape.end()) {
    return 0;
  }
  std::int64_t product = 1;
  for (const std::int64_t size : parameter.shape) {
    if (__builtin_mul_overflow(product, size, &product)) {
      throw Error("its number of elements does not fit in 64 bits", "check the shape",
                  {.parameter = parameter.name});
    }
  }
  return product;
}

std::int64_t Model::numel() const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters) {
    if (!parameter.tied_to.empty()) continue;
    if (__builtin_add_overflow(sum, topologies::numel(parameter), &sum)) {
      throw Error("the elements of model " + printable(name) + " do not fit in 64 bits",
                  "check the shapes");
    }
  }
  return sum;
}

bool is_stepped(const Parameter& parameter) {
  return parameter.requires_grad && parameter.has_gradient && parameter.tied_to.empty();
}

void validate_name(const std::string& name, const std::string& file) {
  check_name("parameter", name, file);
}

void validate(const Model& model, const std::string& file) {
  check_name("model", model.name, file);
  if (model.name.find('/') != std::string::npos) {
    throw Error("the model's name " + printable(model.name) + " holds a '/'",
                "leave it out: '/' separates the parts of a benchmark's name", {.file = file});
  }
  if (model.parameters.empty()) {
    throw Error("model " + printable(model.name) + " has no parameters",
                "there is nothing to measure", {.file = file});
  }
  std::unordered_map<std::string_view, const Parameter*> by_name;
  for (const Parameter& parameter : model.parameters) {
    validate_name(parameter.name, file);
    if (!by_name.emplace(parameter.name, &parameter).second) {
      throw Error("the name occurs twice", "names must be unique",
                  {.parameter = parameter.name, .file = file});
    }
  }
  std::int64_t total = 0;
  for (const Parameter& parameter : model.parameters) {
    const Where where{.parameter = parameter.name, .file = file};
    std::int64_t elements = 0;
    try {
      elements = numel(parameter);
    } catch (const Error& error) {
      throw Error(error.what_failed(), error.advice(), where);
    }
    if (!parameter.tied_to.empty()) {
      const auto owner = by_name.find(parameter.tied_to);
      if (owner == by_name.end()) {
        throw Error("it is tied to " + printable(parameter.tied_to) + ", which does not exist",
                    "name a parameter of the same model", where);
      }
      check_tie(parameter, *owner->second, where);
    } else if (__builtin_add_overflow(total, elements, &total) || total > kMaxModelNumel) {
      throw Error("with it the model has more than 2^55 elements", "check the shapes", where);
    }
  }
}

kernels::DType parse_dtype(std::string_view name) {
  for (const auto dtype : {kernels::DType::fp32, kernels::DType::bf16, kernels::DType::fp16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  throw Error("unknown data type " + printable(name), "use fp32, bf16 or fp16");
}

}  // namespace stepscope::topologies
