#pragma once

/// Purpose: the device code of the CUDA back end: one kernel an algorithm that steps every tensor
/// of a rank in one launch, and the small kernel that sets hyperparameters.
///
/// Usage: kernels/cuda/cuda_step.cu launches it; see there.
///
/// How it works. A warp steps one 256-element block at a time, 8 elements a lane, so a block's
/// absmax is one reduction over a warp and no barrier is needed inside the loop. A lane's elements
/// come in runs of 16 bytes (4 float32 or 8 16-bit elements), so that every access of a warp is
/// contiguous. Code tables and the quantizer's rank tables (kernels/bnb_cuda.h) lie in shared
/// memory; quantizing is one look-up and no search. The grid is what fits on the device at once;
/// each thread block takes a contiguous range of blocks, warps interleaved.
///
/// Step counts live in device memory: the last thread block to finish raises each tensor's count
/// and computes the scalars of its next step, so a launch needs nothing from the host and a
/// replayed CUDA graph counts on.
///
/// Caveats: memory traffic a parameter is 16 bytes with fp32 and 8-bit Adam (28 with float32
/// state), plus 16/256 for the absmax. Two launches with the same table must not run at the same
/// time.

#include <cstdint>

#include "kernels/bnb_cuda.h"
#include "kernels/cuda/step_table.h"

namespace stepscope::kernels::cuda {

inline constexpr int kLaneElements = 8;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// -- tables
// ----------------------------------------------------------------------------------------

/// A constant table as the device can index it, movable in 16-byte words.
template <std::size_t kCount>
struct alignas(16) Words {
  std::uint32_t words[kCount];
};

template <std::size_t kCount>
constexpr Words<kCount> words_of(const std::array<std::uint32_t, kCount>& values) {
  Words<kCount> result{};
  for (std::size_t i = 0; i < kCount; ++i) result.words[i] = values[i];
  return result;
}

__device__ constexpr auto kSignedCodeWords = words_of(kSignedCodeBits);
__device__ constexpr auto kUnsignedCodeWords = words_of(kUnsignedCodeBits);
__device__ constexpr auto kSignedRankWords =
    words_of(bnb_cuda::SignedRankTable::build(kSignedCodeBits, bnb_cuda::kZeroCode));
__device__ constexpr auto kUnsignedRankWords =
    words_of(bnb_cuda::UnsignedRankTable::build(kUnsignedCodeBits, 0));

/// Shared memory of a thread block: 6.6 KB for the first moment's tables, 12.8 KB more for Adam's
/// second moment.
struct FirstMomentTables {
  decltype(words_of(kSignedCodeBits)) codes;
  Words<bnb_cuda::SignedRankTable::kPaddedSize> ranks;
};
struct SecondMomentTables {
  decltype(words_of(kUnsignedCodeBits)) codes;
  Words<bnb_cuda::UnsignedRankTable::kPaddedSize> ranks;
};

/// What an algorithm's kernel keeps in shared memory.
template <Algorithm kAlgorithm>
struct Tables {
  FirstMomentTables first;
  SecondMomentTables second;
};
template <>
struct Tables<Algorithm::Lion> {
  FirstMomentTables first;
};

template <std::size_t kCount>
__device__ void copy_words(Words<kCount>& to, const Words<kCount>& from) {
  static_assert(kCount % 4 == 0);
  for (unsigned i = threadIdx.x; i < kCount / 4; i += kThreads) {
    reinterpret_cast<uint4*>(to.words)[i] = reinterpret_cast<const uint4*>(from.words)[i];
  }
}

// -- a lane's elements
// -----------------------------------------------------------------------------

/// Which 8 elements of a block a lane holds, and whether it may move them in wide accesses.
template <DType kDType>
struct Lane {
  static constexpr int kRun = kDType == DType::fp32 ? 4 : 8;  ///< elements in 16 bytes
  int lane;
  int valid;  ///< elements of the block that exist, 1 to 256
  bool wide;

  /// Position in the block of this lane's element `j`.
  __device__ int element(int j) const { return j / kRun * (32 * kRun) + lane * kRun + j % kRun; }
};

/// 16 bytes, 8 bytes or 4 bytes at an address that is a multiple of as much.
template <int kBytes>
struct Wide;
template <>
struct Wide<16> {
  using Type = uint4;
};
template <>
struct Wide<8> {
  using Type = uint2;
};
template <>
struct Wide<4> {
  using Type = unsigned;
};

/// Moves this lane's elements of `kDType`'s layout between memory, as Values of any size, and
/// registers. `fill` stands for elements past the end.
template <DType kDType, class Value>
__device__ void load_lane(const Lane<kDType>& lane, const Value* block, Value fill,
                          Value (&values)[kLaneElements]) {
  constexpr int kRun = Lane<kDType>::kRun;
  constexpr int kRunBytes = kRun * static_cast<int>(sizeof(Value));
  constexpr int kBytes = kRunBytes < 16 ? kRunBytes : 16;
  constexpr int kPerAccess = kBytes / static_cast<int>(sizeof(Value));
  using Access = typename Wide<kBytes>::Type;
  if (lane.wide) {
#pragma unroll
    for (int j = 0; j < kLaneElements; j += kPerAccess) {
      const Access access = *reinterpret_cast<const Access*>(block + lane.element(j));
      memcpy(&values[j], &access, kBytes);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) {
      values[j] = lane.element(j) < lane.valid ? block[lane.element(j)] : fill;
    }
  }
}

template <DType kDType, class Value>
__device__ void store_lane(const Lane<kDType>& lane, Value* block,
                           const Value (&values)[kLaneElements]) {
  constexpr int kRun = Lane<kDType>::kRun;
  constexpr int kRunBytes = kRun * static_cast<int>(sizeof(Value));
  constexpr int kBytes = kRunBytes < 16 ? kRunBytes : 16;
  constexpr int kPerAccess = kBytes / static_cast<int>(sizeof(Value));
  using Access = typename Wide<kBytes>::Type;
  if (lane.wide) {
#pragma unroll
    for (int j = 0; j < kLaneElements; j += kPerAccess) {
      Access access;
      memcpy(&access, &values[j], kBytes);
      *reinterpret_cast<Access*>(block + lane.element(j)) = access;
    }
  } else {
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) {
      if (lane.element(j) < lane.valid) block[lane.element(j)] = values[j];
    }
  }
}

/// The largest of a warp's values, none of which is NaN and which are not negative but for
/// kEmptyAbsmax: so their bit patterns order as signed integers.
__device__ inline float warp_max(float x) {
  int bits = __float_as_int(x);
#if __CUDA_ARCH__ >= 800
  bits = __reduce_max_sync(kAllLanes, bits);
#else
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    bits = max(bits, __shfl_xor_sync(kAllLanes, bits, apart));
  }
#endif
  return __int_as_float(bits);
}

/// The block's new absmax, the same in every lane; lane 0 stores it. NaN is skipped.
__device__ inline float store_absmax(int lane, const float (&values)[kLaneElements],
                                     float* absmax) {
  float largest = bnb_cuda::kEmptyAbsmax;
#pragma unroll
  for (int j = 0; j < kLaneElements; ++j) largest = fmaxf(largest, fabsf(values[j]));
  largest = warp_max(largest);
  if (lane == 0) *absmax = largest;
  return largest;
}

__device__ inline void quantize_first(const FirstMomentTables& tables,
                                      const float (&m)[kLaneElements], float absmax,
                                      std::uint8_t (&codes)[kLaneElements]) {
  const float inverse = div_rn(1.0f, absmax);
  if (inverse != 0.0f) {
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) {
      codes[j] =
          static_cast<std::uint8_t>(bnb_cuda::fast_signed_code(tables.ranks.words, m[j], inverse));
    }
  } else {
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) {
      codes[j] = static_cast<std::uint8_t>(bnb_cuda::signed_code_of_infinite_absmax(m[j]));
    }
  }
}

__device__ inline void quantize_second(const SecondMomentTables& tables,
                                       const float (&v)[kLaneElements], float absmax,
                                       std::uint8_t (&codes)[kLaneElements]) {
  const float inverse = div_rn(1.0f, absmax);
#pragma unroll
  for (int j = 0; j < kLaneElements; ++j) {
    codes[j] =
        static_cast<std::uint8_t>(bnb_cuda::fast_unsigned_code(tables.ranks.words, v[j], inverse));
  }
}

// -- one block of a tensor
// -------------------------------------------------------------------------

template <DType kDType>
__device__ void step_adam_8bit(const TensorEntry& t, const bnb_cuda::StepScalars& s,
                               const Lane<kDType>& lane, std::int64_t block,
                               const FirstMomentTables& tables1,
                               const SecondMomentTables& tables2) {
  using Bits = typename Element<kDType>::Bits;
  const std::int64_t first = block * kBlockSize;
  Bits* const param = static_cast<Bits*>(t.param) + first;
  std::uint8_t* const state1 = static_cast<std::uint8_t*>(t.state1) + first;
  std::uint8_t* const state2 = static_cast<std::uint8_t*>(t.state2) + first;
  Bits g[kLaneElements];
  Bits p[kLaneElements];
  std::uint8_t codes1[kLaneElements];
  std::uint8_t codes2[kLaneElements];
  load_lane(lane, static_cast<const Bits*>(t.grad) + first, Bits{0}, g);
  load_lane(lane, state1, bnb_cuda::kTailCode1, codes1);
  load_lane(lane, state2, bnb_cuda::kTailCode2, codes2);
  load_lane(lane, static_cast<const Bits*>(param), Bits{0}, p);
  const float absmax1 = t.absmax1[block];
  const float absmax2 = t.absmax2[block];

  float m[kLaneElements];
  float v[kLaneElements];
#pragma unroll
  for (int j = 0; j < kLaneElements; ++j) {
    const float gradient = Element<kDType>::to_float(g[j]);
    const bnb_cuda::Moments old{mul_rn(bits_float(tables1.codes.words[codes1[j]]), absmax1),
                                mul_rn(bits_float(tables2.codes.words[codes2[j]]), absmax2)};
    const bnb_cuda::Moments now = bnb_cuda::adam_8bit_moments(gradient, old, s);
    m[j] = now.first;
    v[j] = now.second;
    const float updated = bnb_cuda::adam_update<kDType>(Element<kDType>::to_float(p[j]), now, s);
    if (bnb_cuda::is_finite(gradient)) p[j] = Element<kDType>::round(updated);
  }
  store_lane(lane, param, p);
  quantize_first(tables1, m, store_absmax(lane.lane, m, t.absmax1 + block), codes1);
  store_lane(lane, state1, codes1);
  quantize_second(tables2, v, store_absmax(lane.lane, v, t.absmax2 + block), codes2);
  store_lane(lane, state2, codes2);
}

template <DType kDType>
__device__ void step_lion_8bit(const TensorEntry& t, const bnb_cuda::StepScalars& s,
                               const Lane<kDType>& lane, std::int64_t block,
                               const FirstMomentTables& tables1) {
  using Bits = typename Element<kDType>::Bits;
  const std::int64_t first = block * kBlockSize;
  Bits* const param = static_cast<Bits*>(t.param) + first;
  std::uint8_t* const state1 = static_cast<std::uint8_t*>(t.state1) + first;
  Bits g[kLaneElements];
  Bits p[kLaneElements];
  std::uint8_t codes1[kLaneElements];
  load_lane(lane, static_cast<const Bits*>(t.grad) + first, Bits{0}, g);
  load_lane(lane, state1, bnb_cuda::kTailCode1, codes1);
  load_lane(lane, static_cast<const Bits*>(param), Bits{0}, p);
  const float absmax1 = t.absmax1[block];

  float m[kLaneElements];
#pragma unroll
  for (int j = 0; j < kLaneElements; ++j) {
    const float gradient = Element<kDType>::to_float(g[j]);
    const float old = mul_rn(bits_float(tables1.codes.words[codes1[j]]), absmax1);
    m[j] = bnb_cuda::lion_8bit_moment(gradient, old, s);
    p[j] = Element<kDType>::round(
        bnb_cuda::lion_8bit_update<kDType>(Element<kDType>::to_float(p[j]), gradient, old, s));
  }
  store_lane(lane, param, p);
  quantize_first(tables1, m, store_absmax(lane.lane, m, t.absmax1 + block), codes1);
  store_lane(lane, state1, codes1);
}

template <Algorithm kAlgorithm, DType kDType>
__device__ void step_fp32_state(const TensorEntry& t, const bnb_cuda::StepScalars& s,
                                const Lane<kDType>& lane, std::int64_t block) {
  using Bits = typename Element<kDType>::Bits;
  const std::int64_t first = block * kBlockSize;
  Bits* const param = static_cast<Bits*>(t.param) + first;
  float* const state1 = static_cast<float*>(t.state1) + first;
  float* const state2 = static_cast<float*>(t.state2) + first;
  Bits g[kLaneElements];
  Bits p[kLaneElements];
  float m[kLaneElements];
  float v[kLaneElements];
  load_lane(lane, static_cast<const Bits*>(t.grad) + first, Bits{0}, g);
  load_lane(lane, static_cast<const float*>(state1), 0.0f, m);
  if constexpr (kAlgorithm == Algorithm::AdamW) {
    load_lane(lane, static_cast<const float*>(state2), 0.0f, v);
  }
  load_lane(lane, static_cast<const Bits*>(param), Bits{0}, p);
#pragma unroll
  for (int j = 0; j < kLaneElements; ++j) {
    const float gradient = Element<kDType>::to_float(g[j]);
    const float parameter = Element<kDType>::to_float(p[j]);
    float updated;
    if constexpr (kAlgorithm == Algorithm::AdamW) {
      const bnb_cuda::Moments now = bnb_cuda::adam_fp32_moments(gradient, {m[j], v[j]}, s);
      m[j] = now.first;
      v[j] = now.second;
      updated = bnb_cuda::adam_update<kDType>(parameter, now, s);
    } else {
      updated = bnb_cuda::lion_fp32_update<kDType>(parameter, gradient, m[j], s);
      m[j] = bnb_cuda::lion_fp32_moment(gradient, m[j], s);
    }
    p[j] = Element<kDType>::round(updated);
  }
  store_lane(lane, param, p);
  store_lane(lane, state1, m);
  if constexpr (kAlgorithm == Algorithm::AdamW) store_lane(lane, state2, v);
}

// -- the kernels
// -----------------------------------------------------------------------------------

/// The tensor that holds `block`, found from `from` = 0 by bisection.
__device__ inline int find_tensor(const StepArguments& a, std::int64_t block) {
  int low = 0;
  int high = a.tensor_count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (block < a.tensors[middle].end_block) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// The last thread block to get here raises every tensor's step and prepares its scalars.
__device__ inline void advance_steps(const StepArguments& a) {
  __shared__ bool is_last;
  __syncthreads();  // every warp has read its scalars
  if (threadIdx.x == 0) {
    __threadfence();
    // Counts to the grid's size and wraps to 0, ready for the next launch.
    is_last = atomicInc(a.finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  for (int i = static_cast<int>(threadIdx.x); i < a.tensor_count; i += kThreads) {
    TensorStep& next = a.steps[i];
    ++next.step;
    next.scalars = bnb_cuda::step_scalars(*a.hyperparameters, next.step);
  }
}

template <Algorithm kAlgorithm, DType kDType>
__device__ void step_block(const TensorEntry& t, const bnb_cuda::StepScalars& s, std::int64_t block,
                           const Tables<kAlgorithm>& tables) {
  const std::int64_t left = t.numel - block * kBlockSize;
  Lane<kDType> lane;
  lane.lane = static_cast<int>(threadIdx.x % 32);
  lane.valid = static_cast<int>(left < kBlockSize ? left : kBlockSize);
  lane.wide = t.vectorizable && lane.valid == kBlockSize;
  if (t.format == StateFormat::fp32) {
    step_fp32_state<kAlgorithm>(t, s, lane, block);
  } else if constexpr (kAlgorithm == Algorithm::AdamW) {
    step_adam_8bit(t, s, lane, block, tables.first, tables.second);
  } else {
    step_lion_8bit(t, s, lane, block, tables.first);
  }
}

template <Algorithm kAlgorithm>
__device__ void step_all(const StepArguments& a) {
  __shared__ Tables<kAlgorithm> tables;
  copy_words(tables.first.codes, kSignedCodeWords);
  copy_words(tables.first.ranks, kSignedRankWords);
  if constexpr (kAlgorithm == Algorithm::AdamW) {
    copy_words(tables.second.codes, kUnsignedCodeWords);
    copy_words(tables.second.ranks, kUnsignedRankWords);
  }
  __syncthreads();

  const std::int64_t index = blockIdx.x;
  const std::int64_t begin =
      index * a.blocks_per_thread_block + (index < a.extra_blocks ? index : a.extra_blocks);
  const std::int64_t end = begin + a.blocks_per_thread_block + (index < a.extra_blocks ? 1 : 0);
  std::int64_t block = begin + threadIdx.x / 32;
  int tensor = block < end ? find_tensor(a, block) : 0;
  for (; block < end; block += kWarps) {
    while (block >= a.tensors[tensor].end_block) ++tensor;
    const TensorEntry& t = a.tensors[tensor];
    const bnb_cuda::StepScalars s = a.steps[tensor].scalars;
    const std::int64_t block_of_tensor = block - t.first_block;
    switch (t.dtype) {
      case DType::fp32:
        step_block<kAlgorithm, DType::fp32>(t, s, block_of_tensor, tables);
        break;
      case DType::bf16:
        step_block<kAlgorithm, DType::bf16>(t, s, block_of_tensor, tables);
        break;
      case DType::fp16:
        step_block<kAlgorithm, DType::fp16>(t, s, block_of_tensor, tables);
        break;
    }
  }
  advance_steps(a);
}

/// At most 64 registers a thread, so that two thread blocks (1,024 threads) fit on every target.
/// Two thread blocks on a multiprocessor leave 80 registers a thread, which is what fits without
/// spilling; 24 warps keep up to 70 KB of loads in flight.
extern "C" __global__ void __launch_bounds__(kThreads, 2) stepscope_adamw_step(StepArguments a) {
  step_all<Algorithm::AdamW>(a);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) stepscope_lion_step(StepArguments a) {
  step_all<Algorithm::Lion>(a);
}

/// Stores new hyperparameters and what follows from them for the step each tensor takes next.
extern "C" __global__ void __launch_bounds__(kThreads)
    stepscope_set_hyperparameters(TensorStep* steps, std::int32_t tensor_count,
                                  bnb_cuda::RoundedHyperparameters* stored,
                                  bnb_cuda::RoundedHyperparameters hyperparameters) {
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index == 0) *stored = hyperparameters;
  if (index < tensor_count) {
    steps[index].scalars = bnb_cuda::step_scalars(hyperparameters, steps[index].step);
  }
}

}  // namespace stepscope::kernels::cuda
