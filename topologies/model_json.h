#pragma once

/// Purpose: a model from a JSON list that a user wrote or made with a few lines of Python.
///
/// Usage:
///     [{"name": "embed.weight", "shape": [50257, 768], "dtype": "bf16"},
///      {"name": "head.weight", "shape": [50257, 768], "dtype": "bf16", "tied_to": "embed.weight"}]
/// or  {"name": "mine", "parameters": [...]}
///
/// Caveats: unknown keys are errors, so that a misspelt "requires_grad" cannot pass unseen.

#include <string>
#include <string_view>

#include "topologies/model.h"

namespace stepscope::topologies {

/// The model in `text`. Each parameter needs "name" and "shape"; "dtype" is "fp32" (default),
/// "bf16" or "fp16"; "requires_grad" and "has_gradient" default to true; "tied_to" names the owner
/// of the storage. `file` stands in messages, and its stem names the model unless the JSON does.
/// Throws Error naming file and parameter.
Model model_from_json(std::string_view text, const std::string& file);

/// As above, from the file at `path` (at most 100 MB).
Model read_model_json(const std::string& path);

}  // namespace stepscope::topologies
