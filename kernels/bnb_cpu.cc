#include "kernels/bnb_cpu.h"

namespace stepscope::kernels {
namespace {

Coefficients common(const Hyperparameters& h) {
  Coefficients c;
  c.beta1 = static_cast<float>(h.beta1);
  c.one_minus_beta1 = static_cast<float>(1.0 - h.beta1);
  c.beta2 = static_cast<float>(h.beta2);
  c.one_minus_beta2 = static_cast<float>(1.0 - h.beta2);
  if (h.weight_decay > 0.0) c.decay = static_cast<float>(1.0 - h.learning_rate * h.weight_decay);
  return c;
}

}  // namespace

Coefficients adamw_8bit_coefficients(const Hyperparameters& h, std::int64_t step) {
  const double correction1 = 1.0 - std::pow(h.beta1, static_cast<double>(step));
  const double correction2 = std::sqrt(1.0 - std::pow(h.beta2, static_cast<double>(step)));
  Coefficients c = common(h);
  c.correction2 = static_cast<float>(correction2);
  c.epsilon = static_cast<float>(h.epsilon);
  c.step_size = static_cast<float>(-h.learning_rate / correction1);
  return c;
}

Coefficients adamw_fp32_coefficients(const Hyperparameters& h, std::int64_t step) {
  const double correction1 = 1.0 - std::pow(h.beta1, static_cast<double>(step));
  const double correction2 = std::sqrt(1.0 - std::pow(h.beta2, static_cast<double>(step)));
  Coefficients c = common(h);
  c.epsilon = static_cast<float>(h.epsilon * correction2);
  c.step_size = static_cast<float>(-h.learning_rate * correction2 / correction1);
  return c;
}

Coefficients lion_coefficients(const Hyperparameters& h) {
  Coefficients c = common(h);
  c.step_size = static_cast<float>(-h.learning_rate);
  return c;
}

Coefficients coefficients_of(Algorithm algorithm, const Hyperparameters& h, StateFormat format,
                             std::int64_t step) {
  if (algorithm == Algorithm::Lion) return lion_coefficients(h);
  return format == StateFormat::blockwise_8bit ? adamw_8bit_coefficients(h, step)
                                               : adamw_fp32_coefficients(h, step);
}

}  // namespace stepscope::kernels
