#include "kernels/scalar_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/code_tables.h"
#include "kernels/half.h"
#include "kernels/quantizer.h"

namespace stepscope::kernels {
namespace {

template <DType dtype>
float load(const void* base, std::int64_t i) {
  if constexpr (dtype == DType::fp32) {
    return static_cast<const float*>(base)[i];
  } else {
    const std::uint16_t bits = static_cast<const std::uint16_t*>(base)[i];
    return dtype == DType::bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
  }
}

template <DType dtype>
void store(void* base, std::int64_t i, float value) {
  if constexpr (dtype == DType::fp32) {
    static_cast<float*>(base)[i] = value;
  } else {
    static_cast<std::uint16_t*>(base)[i] =
        dtype == DType::bf16 ? float_to_bf16(value) : float_to_fp16(value);
  }
}

/// Quantizes `count` values of one block: writes its codes and its absmax.
void quantize_block(CodeTable table, const float* values, std::int64_t count, std::uint8_t* codes,
                    float* absmax) {
  float largest = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) largest = larger_magnitude(largest, values[i]);
  *absmax = largest;
  if (largest == 0.0f) {
    std::memset(codes, 0, static_cast<std::size_t>(count));
    return;
  }
  const auto& entries = encode_table(table);
  const float inverse = 1.0f / largest;
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = entries[static_cast<std::size_t>(encode_index(values[i], inverse))];
  }
}

template <DType dtype>
void adamw_8bit_block(const Coefficients& c, const ShardTensors& s, std::int64_t block) {
  const std::int64_t first = block * kBlockSize;
  const std::int64_t count = std::min(kBlockSize, s.numel - first);
  auto* codes1 = static_cast<std::uint8_t*>(s.state1) + first;
  auto* codes2 = static_cast<std::uint8_t*>(s.state2) + first;
  std::array<float, kBlockSize> m;
  std::array<float, kBlockSize> v;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const float g = load<dtype>(s.grad, first + i);
    m[at] = adamw_moment1(c, g, code_value(kSignedCodeBits, codes1[i]) * s.absmax1[block]);
    v[at] = adamw_moment2(c, g, code_value(kUnsignedCodeBits, codes2[i]) * s.absmax2[block]);
    const float p = load<dtype>(s.param, first + i);
    store<dtype>(s.param, first + i, adamw_8bit_param(c, p, m[at], v[at]));
  }
  quantize_block(CodeTable::signed_codes, m.data(), count, codes1, s.absmax1 + block);
  quantize_block(CodeTable::unsigned_codes, v.data(), count, codes2, s.absmax2 + block);
}

template <DType dtype>
void lion_8bit_block(const Coefficients& c, const ShardTensors& s, std::int64_t block) {
  const std::int64_t first = block * kBlockSize;
  const std::int64_t count = std::min(kBlockSize, s.numel - first);
  auto* codes = static_cast<std::uint8_t*>(s.state1) + first;
  std::array<float, kBlockSize> m;
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = load<dtype>(s.grad, first + i);
    const float old = code_value(kSignedCodeBits, codes[i]) * s.absmax1[block];
    const float p = load<dtype>(s.param, first + i);
    store<dtype>(s.param, first + i, lion_8bit_param(c, p, g, old));
    m[static_cast<std::size_t>(i)] = lion_moment(c, g, old);
  }
  quantize_block(CodeTable::signed_codes, m.data(), count, codes, s.absmax1 + block);
}

template <DType dtype>
void adamw_fp32_block(const Coefficients& c, const ShardTensors& s, std::int64_t block) {
  auto* m = static_cast<float*>(s.state1);
  auto* v = static_cast<float*>(s.state2);
  const std::int64_t end = std::min((block + 1) * kBlockSize, s.numel);
  for (std::int64_t i = block * kBlockSize; i < end; ++i) {
    const float g = load<dtype>(s.grad, i);
    m[i] = adamw_moment1(c, g, m[i]);
    v[i] = adamw_moment2(c, g, v[i]);
    store<dtype>(s.param, i, adamw_fp32_param(c, load<dtype>(s.param, i), m[i], v[i]));
  }
}

template <DType dtype>
void lion_fp32_block(const Coefficients& c, const ShardTensors& s, std::int64_t block) {
  auto* m = static_cast<float*>(s.state1);
  const std::int64_t end = std::min((block + 1) * kBlockSize, s.numel);
  for (std::int64_t i = block * kBlockSize; i < end; ++i) {
    const float g = load<dtype>(s.grad, i);
    store<dtype>(s.param, i, lion_fp32_param(c, load<dtype>(s.param, i), g, m[i]));
    m[i] = lion_moment(c, g, m[i]);
  }
}

template <DType dtype>
void step_blocks(Algorithm algorithm, const Coefficients& c, const ShardTensors& s,
                 std::int64_t first_block, std::int64_t end_block) {
  const bool eight_bit = s.format == StateFormat::blockwise_8bit;
  for (std::int64_t block = first_block; block < end_block; ++block) {
    if (algorithm == Algorithm::AdamW) {
      eight_bit ? adamw_8bit_block<dtype>(c, s, block) : adamw_fp32_block<dtype>(c, s, block);
    } else {
      eight_bit ? lion_8bit_block<dtype>(c, s, block) : lion_fp32_block<dtype>(c, s, block);
    }
  }
}

}  // namespace

void step_blocks_scalar(Algorithm algorithm, const Coefficients& c, const ShardTensors& s,
                        std::int64_t first_block, std::int64_t end_block) noexcept {
  switch (s.dtype) {
    case DType::fp32:
      return step_blocks<DType::fp32>(algorithm, c, s, first_block, end_block);
    case DType::bf16:
      return step_blocks<DType::bf16>(algorithm, c, s, first_block, end_block);
    case DType::fp16:
      return step_blocks<DType::fp16>(algorithm, c, s, first_block, end_block);
  }
}

}  // namespace stepscope::kernels
