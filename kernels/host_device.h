#pragma once

/// Purpose: what lets one header hold arithmetic for host and device: the function qualifier, and
/// float32 operations that round to nearest even exactly once each, on both.
///
/// Usage:
///     STEPSCOPE_HOST_DEVICE float axpy(float a, float x, float y) { return fma_rn(a, x, y); }
///
/// Caveats: on the device the intrinsics keep the compiler from fusing or approximating; on the
/// host the project compiles with -ffp-contract=off (cmake/Options.cmake), which the plain
/// operators rely on. Denormals are kept on both sides. NaN payloads and signs differ between the
/// two, so nothing may depend on them.

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define STEPSCOPE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define STEPSCOPE_HOST_DEVICE inline
#endif

namespace stepscope::kernels {

STEPSCOPE_HOST_DEVICE std::uint32_t float_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return std::bit_cast<std::uint32_t>(x);
#endif
}

STEPSCOPE_HOST_DEVICE float bits_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

STEPSCOPE_HOST_DEVICE float add_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

STEPSCOPE_HOST_DEVICE float sub_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}

STEPSCOPE_HOST_DEVICE float mul_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// a * b + c with one rounding.
STEPSCOPE_HOST_DEVICE float fma_rn(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

STEPSCOPE_HOST_DEVICE float div_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

STEPSCOPE_HOST_DEVICE float sqrt_rn(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

/// The product of two float64, rounded once.
STEPSCOPE_HOST_DEVICE double mul_rn(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

}  // namespace stepscope::kernels
