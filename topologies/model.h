#pragma once

/// Purpose: the words for what is optimized: a model is a list of named parameters with shape and
/// data type. Where it comes from (preset, JSON, .safetensors) is the business of load_model.h.
///
/// Usage:
///     const Model model = load_model("gpt2");
///     for (const Parameter& p : model.parameters) use(p.name, numel(p));
///
/// Caveats: no values are held, only shapes. Sizes are numbers of elements in 64 bits; a validated
/// model has at most kMaxModelNumel of them, so that no byte count of a rank can overflow.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/shard_tensors.h"

namespace stepscope::topologies {

/// The most elements a model may have. At most 16 bytes an element exist (fp32 parameter, gradient
/// and two moments), so 2^55 keeps every sum of bytes below 2^59.
inline constexpr std::int64_t kMaxModelNumel = std::int64_t{1} << 55;

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;  ///< row-major, outermost dimension first; {} is a scalar
  kernels::DType dtype = kernels::DType::fp32;
  bool requires_grad = true;  ///< false: frozen
  bool has_gradient = true;   ///< false: trainable, but no gradient ever reaches it
  std::string tied_to = {};   ///< name of the parameter whose storage it shares, or empty
};

struct Model {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<std::string> skipped = {};  ///< names of tensors of the file that are no parameters

  /// Elements of all parameters; storage that is shared counts once. Throws Error where the sum
  /// does not fit in 64 bits.
  std::int64_t numel() const;
};

/// The product of the dimensions: 1 for a scalar, 0 where any dimension is 0. Throws Error naming
/// the parameter where a dimension is negative or the product does not fit in 64 bits.
std::int64_t numel(const Parameter& parameter);

/// Whether an optimizer step changes this parameter: trainable, with a gradient, and the owner of
/// its storage. Only such parameters have optimizer state.
bool is_stepped(const Parameter& parameter);

/// Names longer than this (in bytes) are refused: no framework makes them, and they would end up in
/// every table and message.
inline constexpr std::size_t kMaxNameBytes = 512;

/// Throws Error unless `name` is a parameter name that can be shown: not empty, at most
/// kMaxNameBytes, and printable (printable.h). `file` is where it comes from.
void validate_name(const std::string& name, const std::string& file = {});

/// Throws Error naming the parameter unless: every parameter's name passes validate_name and is
/// unique, the model's name does and has no '/' (which separates the parts of a benchmark's name),
/// dimensions are not negative, `tied_to` names another parameter of equal shape and dtype that is
/// not tied itself, there is at least one parameter, and numel() <= kMaxModelNumel. `file` is where
/// the model was read from, for the message.
void validate(const Model& model, const std::string& file = {});

/// The inverse of kernels::dtype_name. Throws Error listing the names otherwise.
kernels::DType parse_dtype(std::string_view name);

}  // namespace stepscope::topologies
