#include "topologies/presets.h"

#include <cstdint>
#include <utility>

namespace stepscope::topologies {
namespace {

using kernels::DType;
using Shape = std::vector<std::int64_t>;

struct GptConfig {
  std::string name;
  std::int64_t vocabulary, context, width, layers;
  bool list_tied_head;  // named_parameters() leaves the tied lm_head.weight out
};

struct LlamaConfig {
  std::string name;
  std::int64_t vocabulary, width, inner, key_value_width, layers;
};

void add(Model& model, DType dtype, std::string name, Shape shape) {
  model.parameters.push_back(
      {.name = std::move(name), .shape = std::move(shape), .dtype = dtype, .tied_to = {}});
}

// transformers' GPT2LMHeadModel. Its Conv1D keeps weights as (in, out).
Model gpt(const GptConfig& config) {
  const std::int64_t width = config.width;
  Model model{.name = config.name, .parameters = {}};
  const auto with_bias = [&](const std::string& name, Shape shape) {
    const std::int64_t out = shape.back();
    add(model, DType::fp32, name + ".weight", std::move(shape));
    add(model, DType::fp32, name + ".bias", {out});
  };
  add(model, DType::fp32, "transformer.wte.weight", {config.vocabulary, width});
  add(model, DType::fp32, "transformer.wpe.weight", {config.context, width});
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string block = "transformer.h." + std::to_string(i);
    with_bias(block + ".ln_1", {width});
    with_bias(block + ".attn.c_attn", {width, 3 * width});
    with_bias(block + ".attn.c_proj", {width, width});
    with_bias(block + ".ln_2", {width});
    with_bias(block + ".mlp.c_fc", {width, 4 * width});
    with_bias(block + ".mlp.c_proj", {4 * width, width});
  }
  with_bias("transformer.ln_f", {width});
  if (config.list_tied_head) {
    add(model, DType::fp32, "lm_head.weight", {config.vocabulary, width});
    model.parameters.back().tied_to = "transformer.wte.weight";
  }
  return model;
}

// transformers' LlamaForCausalLM with an untied head.
Model llama(const LlamaConfig& config) {
  Model model{.name = config.name, .parameters = {}};
  const std::int64_t width = config.width;
  const auto weight = [&](const std::string& name, Shape shape) {
    add(model, DType::bf16, name + ".weight", std::move(shape));
  };
  weight("model.embed_tokens", {config.vocabulary, width});
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    weight(layer + ".self_attn.q_proj", {width, width});
    weight(layer + ".self_attn.k_proj", {config.key_value_width, width});
    weight(layer + ".self_attn.v_proj", {config.key_value_width, width});
    weight(layer + ".self_attn.o_proj", {width, width});
    weight(layer + ".mlp.gate_proj", {config.inner, width});
    weight(layer + ".mlp.up_proj", {config.inner, width});
    weight(layer + ".mlp.down_proj", {width, config.inner});
    weight(layer + ".input_layernorm", {width});
    weight(layer + ".post_attention_layernorm", {width});
  }
  weight("model.norm", {width});
  weight("lm_head", {config.vocabulary, width});
  return model;
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = {"tiny", "gpt2", "llama-3.1-8b", "llama-3.1-405b"};
  return names;
}

std::optional<Model> preset(std::string_view name) {
  if (name == "tiny") {
    return gpt({.name = "tiny",
                .vocabulary = 1001,
                .context = 64,
                .width = 128,
                .layers = 4,
                .list_tied_head = true});
  }
  if (name == "gpt2") {
    return gpt({.name = "gpt2",
                .vocabulary = 50257,
                .context = 1024,
                .width = 768,
                .layers = 12,
                .list_tied_head = false});
  }
  if (name == "llama-3.1-8b") {
    return llama({.name = "llama-3.1-8b",
                  .vocabulary = 128256,
                  .width = 4096,
                  .inner = 14336,
                  .key_value_width = 1024,
                  .layers = 32});
  }
  if (name == "llama-3.1-405b") {
    return llama({.name = "llama-3.1-405b",
                  .vocabulary = 128256,
                  .width = 16384,
                  .inner = 53248,
                  .key_value_width = 1024,
                  .layers = 126});
  }
  return std::nullopt;
}

}  // namespace stepscope::topologies
