#include "topologies/safetensors.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "topologies/strict_json.h"

namespace stepscope::topologies {
namespace {

using nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors library

struct ElementType {
  std::string_view name;
  std::int64_t bytes;
  std::optional<kernels::DType> dtype;  // nothing: no parameter, skipped
};

constexpr std::array<ElementType, 12> kElementTypes = {{
    {"F32", 4, kernels::DType::fp32},
    {"BF16", 2, kernels::DType::bf16},
    {"F16", 2, kernels::DType::fp16},
    {"BOOL", 1, std::nullopt},
    {"U8", 1, std::nullopt},
    {"I8", 1, std::nullopt},
    {"U16", 2, std::nullopt},
    {"I16", 2, std::nullopt},
    {"U32", 4, std::nullopt},
    {"I32", 4, std::nullopt},
    {"U64", 8, std::nullopt},
    {"I64", 8, std::nullopt},
}};

struct Tensor {
  Parameter parameter;
  bool is_parameter;
  std::int64_t begin, end;  // bytes, within the data
};

std::int64_t decode_little_endian(std::string_view bytes, const std::string& path) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  if (value > kMaxHeaderBytes) {
    throw Error("its header claims " + std::to_string(value) + " bytes, the limit is 100 MB",
                "this is no .safetensors file, or it is damaged", {.file = path});
  }
  return static_cast<std::int64_t>(value);
}

const ElementType& element_type(const json& value, const Where& where) {
  if (!value.is_string()) throw Error("its \"dtype\" is no string", "the file is damaged", where);
  const auto& name = value.get_ref<const std::string&>();
  for (const ElementType& type : kElementTypes) {
    if (type.name == name) return type;
  }
  throw Error("its data type " + printable(name) + " cannot be stepped",
              "convert it to F32, BF16 or F16, or leave it out", where);
}

Tensor read_tensor(const std::string& name, const json& entry, const std::string& path) {
  validate_name(name, path);
  const Where where{.parameter = name, .file = path};
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    throw Error("its entry is not {\"dtype\", \"shape\", \"data_offsets\"}", "the file is damaged",
                where);
  }
  const ElementType& type = element_type(entry["dtype"], where);
  const json& shape = entry["shape"];
  const json& offsets = entry["data_offsets"];
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2) {
    throw Error("its \"shape\" is no list or its \"data_offsets\" are no pair",
                "the file is damaged", where);
  }
  Tensor tensor{.parameter = {.name = name,
                              .shape = {},
                              .dtype = type.dtype.value_or(kernels::DType::fp32),
                              .tied_to = {}},
                .is_parameter = type.dtype.has_value(),
                .begin = non_negative_integer(offsets[0], "the begin of its data", where),
                .end = non_negative_integer(offsets[1], "the end of its data", where)};
  for (const json& size : shape) {
    tensor.parameter.shape.push_back(non_negative_integer(size, "a dimension", where));
  }
  std::int64_t bytes = 0;
  try {
    bytes = numel(tensor.parameter);
  } catch (const Error& error) {
    throw Error(error.what_failed(), error.advice(), where);
  }
  if (__builtin_mul_overflow(bytes, type.bytes, &bytes) || tensor.end < tensor.begin ||
      tensor.end - tensor.begin != bytes) {
    throw Error("its data from byte " + std::to_string(tensor.begin) + " to " +
                    std::to_string(tensor.end) + " do not match its shape and data type",
                "the file is damaged", where);
  }
  return tensor;
}

// The format demands that the data are one tensor after another from the first byte to the last.
void check_coverage(const std::vector<Tensor>& tensors, std::int64_t data_bytes,
                    const std::string& path) {
  std::int64_t expected = 0;
  for (const Tensor& tensor : tensors) {
    const Where where{.parameter = tensor.parameter.name, .file = path};
    if (tensor.end > data_bytes) {
      throw Error("its data end at byte " + std::to_string(tensor.end) +
                      " of the data, which are " + std::to_string(data_bytes) + " bytes long",
                  "the file is truncated; download it again", where);
    }
    if (tensor.begin != expected) {
      throw Error("its data begin at byte " + std::to_string(tensor.begin) +
                      (tensor.begin < expected ? " and overlap" : " and leave a hole after") +
                      " the tensor before, which ends at " + std::to_string(expected),
                  "the file is damaged", where);
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    throw Error("its tensors take " + std::to_string(expected) + " bytes, and " +
                    std::to_string(data_bytes) + " follow the header",
                "the file is damaged", {.file = path});
  }
}

}  // namespace

Model model_from_safetensors(std::string_view header, std::int64_t data_bytes,
                             const std::string& file) {
  // The header, a tensor's entry and its shape: three levels.
  const json root = parse_strict_json(header, file, {.max_depth = 3});
  if (!root.is_object()) {
    throw Error("its header is no JSON object", "this is no .safetensors file", {.file = file});
  }
  std::vector<Tensor> tensors;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) {
        throw Error("its __metadata__ is no object", "the file is damaged", {.file = file});
      }
      continue;
    }
    tensors.push_back(read_tensor(name, entry, file));
  }
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.end, a.parameter.name) < std::tie(b.begin, b.end, b.parameter.name);
  });
  check_coverage(tensors, data_bytes, file);

  Model model{.name = file_stem(file), .parameters = {}};
  for (Tensor& tensor : tensors) {
    if (tensor.is_parameter) {
      model.parameters.push_back(std::move(tensor.parameter));
    } else {
      model.skipped.push_back(std::move(tensor.parameter.name));
    }
  }
  validate(model, file);
  return model;
}

Model read_safetensors(const std::string& path) {
  InputFile file(path);
  if (file.size() < kLengthBytes) {
    throw Error("it is only " + std::to_string(file.size()) + " bytes long",
                "this is no .safetensors file, or it is truncated", {.file = path});
  }
  const std::int64_t header_bytes = decode_little_endian(file.read(kLengthBytes), path);
  const std::int64_t data_bytes = file.size() - kLengthBytes - header_bytes;
  if (data_bytes < 0) {
    throw Error("its header claims " + std::to_string(header_bytes) + " bytes, the file has " +
                    std::to_string(file.size()),
                "this is no .safetensors file, or it is truncated", {.file = path});
  }
  return model_from_safetensors(file.read(header_bytes), data_bytes, path);
}

}  // namespace stepscope::topologies
