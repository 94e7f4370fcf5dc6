#pragma once

/// Purpose: parameters and gradients as bit patterns of their data type, to and from float32, the
/// same on host and device.
///
/// Usage: `float x = Element<DType::bf16>::to_float(bits); bits = Element<DType::bf16>::round(x);`
///
/// Caveats: rounding is to nearest even and overflow gives Inf. A NaN stays a NaN; its payload is
/// not specified, because the device's conversion instructions have their own.

#include <cstdint>

#include "kernels/half.h"
#include "kernels/host_device.h"
#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

template <DType kDType>
struct Element;

template <>
struct Element<DType::fp32> {
  using Bits = std::uint32_t;
  STEPSCOPE_HOST_DEVICE static float to_float(Bits bits) { return bits_float(bits); }
  STEPSCOPE_HOST_DEVICE static Bits round(float x) { return float_bits(x); }
};

template <>
struct Element<DType::bf16> {
  using Bits = std::uint16_t;
  STEPSCOPE_HOST_DEVICE static float to_float(Bits bits) {
    return bits_float(static_cast<std::uint32_t>(bits) << 16);
  }
  STEPSCOPE_HOST_DEVICE static Bits round(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    Bits bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#elif defined(__CUDA_ARCH__)
    // Turing has no such instruction. Adding half of the last place, less one where it is even,
    // carries exactly when the value rounds up.
    const std::uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<Bits>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#else
    return float_to_bf16(x);
#endif
  }
};

template <>
struct Element<DType::fp16> {
  using Bits = std::uint16_t;
  STEPSCOPE_HOST_DEVICE static float to_float(Bits bits) {
#if defined(__CUDA_ARCH__)
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#else
    return fp16_to_float(bits);
#endif
  }
  STEPSCOPE_HOST_DEVICE static Bits round(float x) {
#if defined(__CUDA_ARCH__)
    Bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    return float_to_fp16(x);
#endif
  }
};

/// `x` rounded to `kDType` and back.
template <DType kDType>
STEPSCOPE_HOST_DEVICE float round_to(float x) {
  return Element<kDType>::to_float(Element<kDType>::round(x));
}
template <>
STEPSCOPE_HOST_DEVICE float round_to<DType::fp32>(float x) {
  return x;
}

}  // namespace stepscope::kernels
