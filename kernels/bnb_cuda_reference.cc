#include "kernels/bnb_cuda_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/bnb_cuda.h"
#include "kernels/validate.h"

namespace stepscope::kernels {
namespace {

using bnb_cuda::Moments;
using bnb_cuda::StepScalars;

constexpr std::size_t kBlock = static_cast<std::size_t>(kBlockSize);

/// Element `i` of an array of kDType.
template <DType kDType>
float load(const void* base, std::int64_t i) {
  typename Element<kDType>::Bits bits;
  std::memcpy(&bits, static_cast<const char*>(base) + i * static_cast<std::int64_t>(sizeof bits),
              sizeof bits);
  return Element<kDType>::to_float(bits);
}

template <DType kDType>
void store(void* base, std::int64_t i, float x) {
  const typename Element<kDType>::Bits bits = Element<kDType>::round(x);
  std::memcpy(static_cast<char*>(base) + i * static_cast<std::int64_t>(sizeof bits), &bits,
              sizeof bits);
}

float absmax_of(const std::array<float, kBlock>& values) {
  float absmax = bnb_cuda::kEmptyAbsmax;
  for (const float x : values) absmax = std::fmax(absmax, std::fabs(x));
  return absmax;
}

template <DType kDType>
void step_8bit_block(Algorithm algorithm, const StepScalars& s, const ShardTensors& t,
                     std::int64_t block) {
  auto* const state1 = static_cast<std::uint8_t*>(t.state1);
  auto* const state2 = static_cast<std::uint8_t*>(t.state2);
  const bool adam = algorithm == Algorithm::AdamW;
  const std::int64_t first = block * kBlockSize;
  const std::int64_t valid = std::min(kBlockSize, t.numel - first);
  std::array<float, kBlock> m{};
  std::array<float, kBlock> v{};
  for (std::int64_t lane = 0; lane < kBlockSize; ++lane) {
    const std::int64_t i = first + lane;
    const bool inside = lane < valid;
    const float g = inside ? load<kDType>(t.grad, i) : 0.0f;
    const std::uint8_t code1 = inside ? state1[i] : bnb_cuda::kTailCode1;
    Moments old{code_value(kSignedCodeBits, code1) * t.absmax1[block], 0.0f};
    Moments now{};
    if (adam) {
      const std::uint8_t code2 = inside ? state2[i] : bnb_cuda::kTailCode2;
      old.second = code_value(kUnsignedCodeBits, code2) * t.absmax2[block];
      now = bnb_cuda::adam_8bit_moments(g, old, s);
    } else {
      now.first = bnb_cuda::lion_8bit_moment(g, old.first, s);
    }
    m[static_cast<std::size_t>(lane)] = now.first;
    v[static_cast<std::size_t>(lane)] = now.second;
    if (!inside) continue;
    const float p = load<kDType>(t.param, i);
    if (adam) {
      if (bnb_cuda::is_finite(g)) {
        store<kDType>(t.param, i, bnb_cuda::adam_update<kDType>(p, now, s));
      }
    } else {
      store<kDType>(t.param, i, bnb_cuda::lion_8bit_update<kDType>(p, g, old.first, s));
    }
  }
  t.absmax1[block] = absmax_of(m);
  const float inverse1 = 1.0f / t.absmax1[block];
  for (std::int64_t lane = 0; lane < valid; ++lane) {
    state1[first + lane] = bnb_cuda::signed_code(m[static_cast<std::size_t>(lane)], inverse1);
  }
  if (!adam) return;
  t.absmax2[block] = absmax_of(v);
  const float inverse2 = 1.0f / t.absmax2[block];
  for (std::int64_t lane = 0; lane < valid; ++lane) {
    state2[first + lane] = bnb_cuda::unsigned_code(v[static_cast<std::size_t>(lane)], inverse2);
  }
}

template <DType kDType>
void step_fp32_element(Algorithm algorithm, const StepScalars& s, const ShardTensors& t,
                       std::int64_t i) {
  const float g = load<kDType>(t.grad, i);
  const float p = load<kDType>(t.param, i);
  const float old = load<DType::fp32>(t.state1, i);
  if (algorithm == Algorithm::AdamW) {
    const Moments now = bnb_cuda::adam_fp32_moments(g, {old, load<DType::fp32>(t.state2, i)}, s);
    store<kDType>(t.param, i, bnb_cuda::adam_update<kDType>(p, now, s));
    store<DType::fp32>(t.state1, i, now.first);
    store<DType::fp32>(t.state2, i, now.second);
  } else {
    store<kDType>(t.param, i, bnb_cuda::lion_fp32_update<kDType>(p, g, old, s));
    store<DType::fp32>(t.state1, i, bnb_cuda::lion_fp32_moment(g, old, s));
  }
}

template <DType kDType>
void step_shard(Algorithm algorithm, const StepScalars& s, const ShardTensors& t) {
  if (t.format == StateFormat::blockwise_8bit) {
    for (std::int64_t block = 0; block < block_count(t.numel); ++block) {
      step_8bit_block<kDType>(algorithm, s, t, block);
    }
  } else {
    for (std::int64_t i = 0; i < t.numel; ++i) step_fp32_element<kDType>(algorithm, s, t, i);
  }
}

}  // namespace

void step_bnb_cuda_reference(Algorithm algorithm, const Hyperparameters& hyperparameters,
                             const ShardTensors& tensors) {
  validate(algorithm, hyperparameters, tensors);
  const StepScalars scalars =
      bnb_cuda::step_scalars(bnb_cuda::round_hyperparameters(hyperparameters), tensors.step);
  switch (tensors.dtype) {
    case DType::fp32:
      return step_shard<DType::fp32>(algorithm, scalars, tensors);
    case DType::bf16:
      return step_shard<DType::bf16>(algorithm, scalars, tensors);
    case DType::fp16:
      return step_shard<DType::fp16>(algorithm, scalars, tensors);
  }
}

}  // namespace stepscope::kernels
