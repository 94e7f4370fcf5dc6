#include "kernels/reference_step.h"

#include "core/error.h"
#include "kernels/bnb_cpu.h"
#include "kernels/scalar_blocks.h"
#include "kernels/validate.h"

namespace stepscope::kernels {

void step_reference(Algorithm algorithm, const Hyperparameters& hyperparameters,
                    const ShardTensors& shard) {
  validate(algorithm, hyperparameters, shard);
  step_blocks_scalar(algorithm,
                     coefficients_of(algorithm, hyperparameters, shard.format, shard.step), shard,
                     0, block_count(shard.numel));
}

void step_torch_adamw_reference(const Hyperparameters& hyperparameters, const ShardTensors& shard) {
  if (shard.dtype != DType::fp32 || shard.format != StateFormat::fp32) {
    throw Error("the rule of torch.optim.AdamW is defined here for fp32 parameters and state only",
                "pass DType::fp32 and StateFormat::fp32");
  }
  validate(Algorithm::AdamW, hyperparameters, shard);
  const Coefficients c = adamw_8bit_coefficients(hyperparameters, shard.step);
  auto* p = static_cast<float*>(shard.param);
  const auto* g = static_cast<const float*>(shard.grad);
  auto* m = static_cast<float*>(shard.state1);
  auto* v = static_cast<float*>(shard.state2);
  for (std::int64_t i = 0; i < shard.numel; ++i) {
    m[i] = torch_adamw_moment1(c, g[i], m[i]);
    v[i] = adamw_moment2(c, g[i], v[i]);
    p[i] = adamw_8bit_param(c, p[i], m[i], v[i]);
  }
}

}  // namespace stepscope::kernels
