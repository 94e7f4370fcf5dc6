#pragma once

/// Purpose: models that come with the program, with the parameter names and shapes of the published
/// ones.
///
/// Usage:  const std::optional<Model> model = preset("gpt2");
///
/// Caveats: names and order are those of `named_parameters()` of the Hugging Face classes
/// (GPT2LMHeadModel, LlamaForCausalLM), data types those of the published files.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/model.h"

namespace stepscope::topologies {

/// The names of all presets, in the order they are shown to the user:
///   tiny            929,664 parameters in 53 tensors; awkward on purpose: the vocabulary (1001) is
///                   odd, lm_head is tied, 34 tensors are below bitsandbytes' 8-bit threshold
///   gpt2            124,439,808 in 148 tensors, fp32
///   llama-3.1-8b    8,030,261,248 in 291 tensors, bf16
///   llama-3.1-405b  405,853,388,800 in 1,137 tensors, bf16
const std::vector<std::string>& preset_names();

/// The preset of that name, or nothing.
std::optional<Model> preset(std::string_view name);

}  // namespace stepscope::topologies
