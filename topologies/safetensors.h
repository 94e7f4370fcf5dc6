#pragma once

/// Purpose: a model from the header of a real .safetensors file: 8 bytes little-endian length, then
/// JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...}, then the data, as
/// https://huggingface.co/docs/safetensors describes it.
///
/// Usage:  const Model model = read_safetensors("model.safetensors");
///
/// Caveats: only the header is read, so a file of any size costs milliseconds; the values of the
/// tensors are never looked at. The file need not be trusted.

#include <cstdint>
#include <string>
#include <string_view>

#include "topologies/model.h"

namespace stepscope::topologies {

/// The tensors that the JSON text `header` describes, in the order of their data, which take
/// `data_bytes` bytes behind it. F32, BF16 and F16 become parameters; boolean and integer tensors
/// are listed in Model::skipped. F64, complex and 8-bit or smaller floats are refused by name: no
/// kernel of the suite steps them. The model is named after the stem of `file`, which stands in
/// messages.
///
/// Throws Error with the file (and the tensor where there is one) for anything that the format
/// forbids: not JSON, repeated or unknown keys, sizes that do not match the shape, data that
/// overlap, leave holes, or do not end with the file.
Model model_from_safetensors(std::string_view header, std::int64_t data_bytes,
                             const std::string& file);

/// As above, from the file at `path`. Throws Error, too, where the header is longer than the file
/// or than 100 MB.
Model read_safetensors(const std::string& path);

}  // namespace stepscope::topologies
