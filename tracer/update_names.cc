#include "tracer/update_names.h"

#include <array>

namespace stepscope::tracer {
namespace {

/// Found anywhere in a name. bitsandbytes' grids: ceil(n/256) and ceil(n/4096). PyTorch's fused
/// kernels take tables of chunks, and so does ours.
constexpr std::array<UpdateRule, 9> kKernels = {{
    {.name = "kOptimizerStatic8bit2StateBlockwise", .elements_per_block = 256},
    {.name = "kOptimizerStatic8bit1StateBlockwise", .elements_per_block = 256},
    {.name = "kOptimizer32bit2State", .elements_per_block = 4096},
    {.name = "kOptimizer32bit1State", .elements_per_block = 4096},
    {.name = "kPreconditionOptimizer32bit",
     .scope = UpdateScope::norm_only,
     .elements_per_block = 4096},
    {.name = "stepscope_adamw_step", .scope = UpdateScope::all_tensors, .elements_per_block = 256},
    {.name = "stepscope_lion_step", .scope = UpdateScope::all_tensors, .elements_per_block = 256},
    {.name = "FusedAdamMathFunctor", .scope = UpdateScope::all_tensors},
    {.name = "FusedSgdMathFunctor", .scope = UpdateScope::all_tensors},
}};

/// Whole names.
constexpr std::array<UpdateRule, 6> kOperators = {{
    {.name = "bitsandbytes::optimizer_update_8bit_blockwise", .argument = 2},
    {.name = "bitsandbytes::optimizer_update_32bit", .argument = 2},
    {.name = "aten::_fused_adamw_"},
    {.name = "aten::_fused_adam_"},
    {.name = "aten::_fused_sgd_"},
    {.name = "aten::_fused_adagrad_"},
}};

constexpr UpdateRule kOurOperators = {.name = "stepscope::*_step",
                                      .scope = UpdateScope::each_input};

}  // namespace

const UpdateRule* update_kernel(std::string_view name) {
  for (const UpdateRule& rule : kKernels) {
    if (name.find(rule.name) != std::string_view::npos) return &rule;
  }
  return nullptr;
}

const UpdateRule* update_operator(std::string_view name) {
  for (const UpdateRule& rule : kOperators) {
    if (name == rule.name) return &rule;
  }
  if (name.starts_with("stepscope::") && name.ends_with("_step")) return &kOurOperators;
  return nullptr;
}

}  // namespace stepscope::tracer
