#pragma once

/// Purpose: the one way from what a user writes after --model to a Model.
///
/// Usage:  const Model model = load_model("gpt2");   // or "mine.json", "model.safetensors"

#include <string>

#include "topologies/model.h"

namespace stepscope::topologies {

/// The preset named `spec`, or the model in the file `spec` that ends in .json (model_json.h) or
/// .safetensors (safetensors.h); always validated. Throws Error, for an unknown name with the
/// list of presets.
Model load_model(const std::string& spec);

}  // namespace stepscope::topologies
