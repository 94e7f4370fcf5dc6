#include "topologies/synthetic_values.h"

#include <cstddef>
#include <cstring>

namespace stepscope::topologies {
namespace {

using kernels::DType;

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014): every input bit reaches every output
/// bit.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct Value {
  std::uint32_t sign;      ///< 0 or 1
  std::int32_t exponent;   ///< power of two; ignored for zero
  std::uint32_t fraction;  ///< 7 bits
  bool zero;
};

void store(DType dtype, std::byte* destination, const Value& value) {
  const auto exponent = static_cast<std::uint32_t>(value.exponent);
  switch (dtype) {
    case DType::fp32: {
      const std::uint32_t bits =
          value.zero ? 0 : (value.sign << 31) | ((exponent + 127) << 23) | (value.fraction << 16);
      std::memcpy(destination, &bits, sizeof bits);
      break;
    }
    case DType::bf16: {
      const auto bits = static_cast<std::uint16_t>(
          value.zero ? 0 : (value.sign << 15) | ((exponent + 127) << 7) | value.fraction);
      std::memcpy(destination, &bits, sizeof bits);
      break;
    }
    case DType::fp16: {
      const auto bits = static_cast<std::uint16_t>(
          value.zero ? 0 : (value.sign << 15) | ((exponent + 15) << 10) | (value.fraction << 3));
      std::memcpy(destination, &bits, sizeof bits);
      break;
    }
  }
}

template <typename Draw>
void fill(DType dtype, void* destination, std::uint64_t stream, std::int64_t first,
          std::int64_t count, Draw draw) {
  auto* out = static_cast<std::byte*>(destination);
  const auto size = kernels::element_bytes(dtype);
  const std::uint64_t key = mix(stream + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::uint64_t>(first + i);
    store(dtype, out + i * size, draw(mix(key + place * 0x9e3779b97f4a7c15u)));
  }
}

}  // namespace

void fill_parameter(DType dtype, void* destination, std::uint64_t parameter, std::int64_t first,
                    std::int64_t count) {
  fill(dtype, destination, 2 * parameter, first, count, [](std::uint64_t random) {
    return Value{.sign = static_cast<std::uint32_t>(random & 1),
                 .exponent = -9 + static_cast<std::int32_t>((random >> 1) % 6),
                 .fraction = static_cast<std::uint32_t>(random >> 57),
                 .zero = false};
  });
}

void fill_gradient(DType dtype, void* destination, std::uint64_t parameter, std::int64_t first,
                   std::int64_t count) {
  fill(dtype, destination, 2 * parameter + 1, first, count, [](std::uint64_t random) {
    return Value{.sign = static_cast<std::uint32_t>(random & 1),
                 .exponent = -13 + static_cast<std::int32_t>((random >> 1) % 8),
                 .fraction = static_cast<std::uint32_t>(random >> 57),
                 .zero = ((random >> 8) & 15) == 0};
  });
}

}  // namespace stepscope::topologies
