#include "topologies/optimizer.h"

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/printable.h"

namespace stepscope::topologies {
namespace {

struct Facts {
  std::string_view name;
  kernels::Algorithm algorithm;
  int moments;
  bool asks_8bit;
  kernels::Hyperparameters defaults;
};

// In the order of the enumeration.
constexpr std::array<Facts, 3> kFacts = {{
    {"AdamW8bit",
     kernels::Algorithm::AdamW,
     2,
     true,
     {.learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01}},
    {"Lion8bit",
     kernels::Algorithm::Lion,
     1,
     true,
     {.learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 0, .weight_decay = 0}},
    {"AdamW",
     kernels::Algorithm::AdamW,
     2,
     false,
     {.learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01}},
}};

const Facts& facts(Optimizer optimizer) { return kFacts[static_cast<std::size_t>(optimizer)]; }

/// Optimizers of bitsandbytes that people ask for and that are not here, by a word in their names
/// however they are spelt (PagedAdamW8bit, paged_adamw_8bit), and why.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNotHere = {{
    {"paged", "its state is paged: managed memory that moves between host and device"},
    {"ademamix", "AdEMAMix keeps a third moment"},
    {"lamb", "LAMB needs the norm of the whole parameter, of which a rank holds a shard"},
    {"lars", "LARS needs the norm of the whole parameter, of which a rank holds a shard"},
}};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace

const std::vector<Optimizer>& all_optimizers() {
  static const std::vector<Optimizer> all = {Optimizer::AdamW8bit, Optimizer::Lion8bit,
                                             Optimizer::AdamW};
  return all;
}

std::string_view optimizer_name(Optimizer optimizer) { return facts(optimizer).name; }

Optimizer parse_optimizer(std::string_view name) {
  for (const Optimizer optimizer : all_optimizers()) {
    if (name == optimizer_name(optimizer)) return optimizer;
  }
  const char* const advice = "use AdamW8bit, Lion8bit or AdamW";
  for (const auto& [word, reason] : kNotHere) {
    if (lower_case(name).find(word) == std::string::npos) continue;
    throw Error("optimizer " + printable(name) + " is not supported: " + std::string(reason),
                advice);
  }
  throw Error("unknown optimizer " + printable(name), advice);
}

kernels::Algorithm algorithm(Optimizer optimizer) { return facts(optimizer).algorithm; }

int moment_count(Optimizer optimizer) { return facts(optimizer).moments; }

bool asks_8bit(Optimizer optimizer) { return facts(optimizer).asks_8bit; }

kernels::Hyperparameters default_hyperparameters(Optimizer optimizer) {
  return facts(optimizer).defaults;
}

}  // namespace stepscope::topologies
