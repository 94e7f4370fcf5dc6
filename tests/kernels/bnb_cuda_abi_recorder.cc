// A library with the C interface of libbitsandbytes_cuda13*.so that writes down how it was called.
// The wheel's own needs a GPU to do anything with its arguments.

#include <cstdint>
#include <string>
#include <type_traits>

namespace {
std::string last_call;

template <class... Arguments>
void record(const char* name, Arguments... arguments) {
  last_call = name;
  const auto add = [](auto argument) {
    if constexpr (std::is_pointer_v<decltype(argument)>) {
      last_call += " @" + std::to_string(reinterpret_cast<std::uintptr_t>(argument));
    } else {
      last_call += " " + std::to_string(argument);
    }
  };
  (add(arguments), ...);
}
}  // namespace

extern "C" {

const char* recorded_call() { return last_call.c_str(); }
void forget_call() { last_call = "none"; }

#define STEP_8BIT(name)                                                                         \
  void name(void* p, void* g, std::uint8_t* s1, std::uint8_t* s2, float b1, float b2, float b3, \
            float alpha, float eps, int step, float lr, float* q1, float* q2, float* a1,        \
            float* a2, float wd, float gnorm, bool skip, int n) {                               \
    record(#name, p, g, s1, s2, b1, b2, b3, alpha, eps, step, lr, q1, q2, a1, a2, wd, gnorm,    \
           static_cast<int>(skip), n);                                                          \
  }
#define STEP_FP32(name)                                                                         \
  void name(void* g, void* p, float* s1, float* s2, float* norm, float max_norm, float p_norm,  \
            float b1, float b2, float b3, float alpha, float eps, float wd, int step, float lr, \
            float gnorm, bool skip, int n) {                                                    \
    record(#name, g, p, s1, s2, norm, max_norm, p_norm, b1, b2, b3, alpha, eps, wd, step, lr,   \
           gnorm, static_cast<int>(skip), n);                                                   \
  }

STEP_8BIT(cadam_8bit_blockwise_grad_fp32)
STEP_8BIT(cadam_8bit_blockwise_grad_bf16)
STEP_8BIT(cadam_8bit_blockwise_grad_fp16)
STEP_8BIT(clion_8bit_blockwise_grad_fp32)
STEP_8BIT(clion_8bit_blockwise_grad_bf16)
STEP_8BIT(clion_8bit_blockwise_grad_fp16)
STEP_FP32(cadam32bit_grad_fp32)
STEP_FP32(cadam32bit_grad_bf16)
STEP_FP32(cadam32bit_grad_fp16)
STEP_FP32(clion32bit_grad_fp32)
STEP_FP32(clion32bit_grad_bf16)
#ifndef STEPSCOPE_ONE_FUNCTION_MISSING
STEP_FP32(clion32bit_grad_fp16)
#endif

}  // extern "C"
