#include "kernels/simd_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/byte_tables.h"
#include "kernels/code_tables.h"
#include "kernels/cpu_step.h"
#include "kernels/encode_pieces.h"
#include "kernels/scalar_blocks.h"

// AVX3_DL is AVX-512 with the byte permutations (VBMI). What has AVX-512 without them runs the AVX2
// kernel, which is faster than any that looks its codes up in memory. SSE has no fused
// multiply-add, so what is below AVX2 runs the scalar kernel.
#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_blocks.cc"
#include "hwy/foreach_target.h"  // includes this file once a target
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace stepscope {
namespace kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3_DL
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using U = hn::RebindToUnsigned<F>;
using U8 = hn::Rebind<std::uint8_t, F>;
using F16 = hn::Rebind<hwy::float16_t, F>;
using VF = hn::Vec<F>;
using VU = hn::Vec<U>;
using I = hn::RebindToSigned<F>;
using W = hn::Repartition<std::uint16_t, U>;
using VW = hn::Vec<W>;
using W16 = hn::Rebind<std::uint16_t, F>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(F()));

/// Which elements of a group its vectors hold.
enum class Order {
  consecutive,  ///< vector k those from k * kLanes on
  pairs,        ///< vectors 2k and 2k + 1 the even and the odd ones from 2k * kLanes on
};

/// bf16 numbers become float32 in pairs without a shuffle, and only so.
constexpr Order order_of(DType dtype) {
  return dtype == DType::bf16 ? Order::pairs : Order::consecutive;
}

#if HWY_TARGET == HWY_AVX3_DL
#include "kernels/codec_vbmi-inl.h"
#else
#include "kernels/codec_pieces-inl.h"
#endif

/// Two vectors of bf16 numbers.
template <Order order>
HWY_INLINE void load_bf16(const std::uint16_t* base, VF out[2]) {
  if constexpr (order == Order::pairs) {
    const VU words = hn::BitCast(U(), hn::LoadU(W(), base));
    out[0] = hn::BitCast(F(), hn::ShiftLeft<16>(words));
    out[1] = hn::BitCast(F(), hn::And(words, hn::Set(U(), 0xffff0000u)));
  } else {
    for (std::int64_t k = 0; k < 2; ++k) {
      const VU words = hn::PromoteTo(U(), hn::LoadU(W16(), base + k * kLanes));
      out[k] = hn::BitCast(F(), hn::ShiftLeft<16>(words));
    }
  }
}

/// Rounds two vectors to bf16, ties to even, and stores them. A NaN whose lower 16 bits are zeros
/// keeps its upper ones.
template <Order order>
HWY_INLINE void round_and_store_bf16(VF first, VF second, std::uint16_t* base) {
  const VU a = hn::BitCast(U(), first);
  const VU b = hn::BitCast(U(), second);
  if constexpr (order == Order::pairs) {
    const VW upper = hn::OddEven(hn::BitCast(W(), b), hn::BitCast(W(), hn::ShiftRight<16>(a)));
    const VW lower = hn::OddEven(hn::BitCast(W(), hn::ShiftLeft<16>(b)), hn::BitCast(W(), a));
    // Up from 0x8000 if the upper word is odd, from 0x8001 if it is even.
    const VW even = hn::AndNot(upper, hn::Set(W(), 1));
    const VW up = hn::ShiftRight<15>(hn::SaturatedSub(lower, even));
    hn::StoreU(hn::Add(upper, up), W(), base);
  } else {
    for (const VU bits : {a, b}) {
      const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U(), 1));
      const VU rounded = hn::Add(hn::Add(bits, hn::Set(U(), 0x7fff)), odd);
      const hn::Vec<I> upper = hn::BitCast(I(), hn::ShiftRight<16>(rounded));
      hn::StoreU(hn::DemoteTo(W16(), upper), W16(), base);
      base += kLanes;
    }
  }
}

/// The NaNs that a parameter may be after its update. Arithmetic hands on the bits of a NaN that it
/// is given, and makes others with zeros in their lower 16 bits.
enum class Nans {
  given_by_bf16,  ///< from bf16 tensors alone: the lower 16 bits are zeros; unify_nans() follows
  any,            ///< from float32 tensors, too
};

template <Order order, Nans nans>
HWY_INLINE void store_bf16(const VF values[2], std::uint16_t* base) {
  VF first = values[0];
  VF second = values[1];
  // A sum is NaN if one of its terms is; it may be without, which does no harm.
  if (nans == Nans::any && HWY_UNLIKELY(!hn::AllFalse(F(), hn::IsNaN(hn::Add(first, second))))) {
    const VF nan = hn::BitCast(F(), hn::Set(U(), 0xffff0000u));
    first = hn::IfThenElse(hn::IsNaN(first), nan, first);
    second = hn::IfThenElse(hn::IsNaN(second), nan, second);
  }
  round_and_store_bf16<order>(first, second, base);
}

/// Whether doubled bf16 numbers, which have lost their signs, are NaN: above the infinities.
HWY_INLINE hn::Mask<W> are_nan(VW doubled) { return hn::Gt(doubled, hn::Set(W(), 0xff00)); }

/// Apart from the loops over whole blocks, which are faster without it.
HWY_NOINLINE void replace_nans(std::uint16_t* block) {
  for (std::int64_t i = 0; i < kBlockSize; i += 2 * kLanes) {
    const VW words = hn::LoadU(W(), block + i);
    const auto nan = are_nan(hn::ShiftLeft<1>(words));
    hn::StoreU(hn::IfThenElse(nan, hn::Set(W(), 0xffff), words), W(), block + i);
  }
}

/// Makes every NaN of a block of bf16 numbers 0xffff, as kernels/half.h does. Asked once a block,
/// it costs less than in every store.
HWY_INLINE void unify_nans(std::uint16_t* block) {
  VW largest = hn::Zero(W());
  for (std::int64_t i = 0; i < kBlockSize; i += 2 * kLanes) {
    largest = hn::Max(largest, hn::ShiftLeft<1>(hn::LoadU(W(), block + i)));
  }
  if (HWY_UNLIKELY(!hn::AllFalse(W(), are_nan(largest)))) replace_nans(block);
}

/// Two vectors of a parameter or gradient, from element i on.
template <DType dtype, Order order = order_of(dtype)>
HWY_INLINE void load_pair(const void* base, std::int64_t i, VF out[2]) {
  if constexpr (dtype == DType::fp32) {
    out[0] = hn::LoadU(F(), static_cast<const float*>(base) + i);
    out[1] = hn::LoadU(F(), static_cast<const float*>(base) + i + kLanes);
  } else if constexpr (dtype == DType::bf16) {
    load_bf16<order>(static_cast<const std::uint16_t*>(base) + i, out);
  } else {
    const auto* halves = static_cast<const hwy::float16_t*>(base) + i;
    out[0] = hn::PromoteTo(F(), hn::LoadU(F16(), halves));
    out[1] = hn::PromoteTo(F(), hn::LoadU(F16(), halves + kLanes));
  }
}

template <DType dtype, Nans nans, Order order = order_of(dtype)>
HWY_INLINE void store_pair(const VF values[2], void* base, std::int64_t i) {
  if constexpr (dtype == DType::fp32) {
    hn::StoreU(values[0], F(), static_cast<float*>(base) + i);
    hn::StoreU(values[1], F(), static_cast<float*>(base) + i + kLanes);
  } else if constexpr (dtype == DType::bf16) {
    store_bf16<order, nans>(values, static_cast<std::uint16_t*>(base) + i);
  } else {
    auto* halves = static_cast<hwy::float16_t*>(base) + i;
    hn::StoreU(hn::DemoteTo(F16(), values[0]), F16(), halves);
    hn::StoreU(hn::DemoteTo(F16(), values[1]), F16(), halves + kLanes);
  }
}

/// p * decay + step_size * sign(direction)
HWY_INLINE VF lion_param(VF p, VF decay, VF step_size, VF direction) {
  const VF decayed = hn::Mul(p, decay);
  const VF update = hn::Xor(step_size, hn::And(direction, hn::SignBit(F())));
  // Where the sign is 0 nothing is added, not even a zero: it would turn -0 into +0. The comparison
  // is false for a NaN.
  const auto moves = hn::Ne(direction, hn::Zero(F()));
  return hn::IfThenElse(moves, hn::Add(decayed, update), decayed);
}

struct Scalars {
  VF beta1, one_minus_beta1, beta2, one_minus_beta2, decay, correction2, epsilon, step_size;
  VF inverse_correction2;  // for divide()
};

HWY_INLINE Scalars broadcast(const Coefficients& c) {
  const F f;
  return {hn::Set(f, c.beta1),
          hn::Set(f, c.one_minus_beta1),
          hn::Set(f, c.beta2),
          hn::Set(f, c.one_minus_beta2),
          hn::Set(f, c.decay),
          hn::Set(f, c.correction2),
          hn::Set(f, c.epsilon),
          hn::Set(f, c.step_size),
          hn::Set(f, 1.0f / c.correction2)};
}

HWY_INLINE VF adamw_moment1(const Scalars& c, VF g, VF m) {
  return hn::MulAdd(g, c.one_minus_beta1, hn::Mul(m, c.beta1));
}

HWY_INLINE VF adamw_moment2(const Scalars& c, VF g, VF v) {
  return hn::MulAdd(hn::Mul(c.one_minus_beta2, g), g, hn::Mul(v, c.beta2));
}

HWY_INLINE VF lion_moment(const Scalars& c, VF g, VF m) {
  return hn::MulAdd(g, c.one_minus_beta2, hn::Mul(m, c.beta2));
}

/// x / divisor, exactly: kernels/constant_division.h, a vector at a time.
HWY_INLINE VF divide(VF x, VF divisor, VF reciprocal) {
  const VF quotient = hn::Mul(x, reciprocal);
  const VF remainder = hn::NegMulAdd(quotient, divisor, x);
  return hn::MulAdd(remainder, reciprocal, quotient);
}

constexpr std::int64_t kPrefetchElements = 2 * kBlockSize;

/// Asks for the cache lines of `count` elements that a later block will use, from element i on.
/// The address may lie beyond the tensor: a prefetch reads nothing and cannot fault.
HWY_INLINE void prefetch(const void* base, std::int64_t i, std::int64_t element_size,
                         std::int64_t count) {
  const auto address = reinterpret_cast<std::uintptr_t>(base) +
                       static_cast<std::uintptr_t>((i + kPrefetchElements) * element_size);
  for (std::int64_t byte = 0; byte < count * element_size; byte += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(address + static_cast<std::uintptr_t>(byte)));
  }
}

/// The largest bit pattern among |x|: that of the absmax, or of a NaN when there is one.
HWY_INLINE std::uint32_t largest_bits(VU largest) {
  return hn::GetLane(hn::MaxOfLanes(U(), largest));
}

/// Whether a block with this largest bit pattern may be encoded by a codec: zeros only (then with
/// the inverse 0), or finite numbers whose absmax has a finite reciprocal.
HWY_INLINE bool is_plain(std::uint32_t bits) {
  return bits == 0 || (bits >= 0x00800000u && bits < 0x7f800000u);
}

HWY_INLINE float inverse_of(std::uint32_t bits) {
  return bits == 0 ? 0.0f : 1.0f / std::bit_cast<float>(bits);
}

/// Writes the absmax; a block of zeros has code 0 everywhere, which is not what its zeros encode
/// to.
HWY_INLINE void finish(std::uint32_t bits, std::uint8_t* codes, float* absmax) {
  *absmax = std::bit_cast<float>(bits);
  if (HWY_UNLIKELY(bits == 0)) std::memset(codes, 0, kBlockSize);
}

/// In a plain block all moments are finite, and with them the gradients and the absmaxes.
constexpr Nans kNans = Nans::given_by_bf16;

/// Moments of one block between the two passes over it, and the largest bit patterns among them.
struct AdamWBlock {
  alignas(64) float m[kBlockSize];
  alignas(64) float v[kBlockSize];
  std::uint32_t bits1;
  std::uint32_t bits2;
};

template <DType dtype>
class AdamW8bit {
 public:
  AdamW8bit(const Coefficients& coefficients, const ShardTensors& s)
      : s_(s), coefficients_(coefficients), c_(broadcast(coefficients)) {}

  // What both passes use again and again is copied to locals: the compiler must assume that a
  // store through the shard's pointers changes members, and would load them again.

  /// First pass: the moments. Changes nothing in the shard.
  HWY_INLINE void moments(std::int64_t block, AdamWBlock& work) const {
    const Scalars c = c_;
    const void* const grad = s_.grad;
    const std::int64_t first = block * kBlockSize;
    const auto* codes1 = static_cast<const std::uint8_t*>(s_.state1) + first;
    const auto* codes2 = static_cast<const std::uint8_t*>(s_.state2) + first;
    const VF absmax1 = hn::Set(F(), s_.absmax1[block]);
    const VF absmax2 = hn::Set(F(), s_.absmax2[block]);
    VU largest1 = hn::Zero(U());
    VU largest2 = hn::Zero(U());
    for (std::int64_t at = 0; at < kBlockSize; at += kGroup) {
      prefetch(grad, first + at, element_bytes(dtype), kGroup);
      prefetch(codes1, at, 1, kGroup);
      prefetch(codes2, at, 1, kGroup);
      VF g[2];
      VF m[kVectors];
      VF v[kVectors];
      codec1_.template decode<order_of(dtype)>(codes1 + at, m);
      codec2_.template decode<order_of(dtype)>(codes2 + at, v);
      for (std::int64_t k = 0; k < kVectors; ++k) {
        const std::int64_t i = at + k * kLanes;
        if (k % 2 == 0) load_pair<dtype>(grad, first + i, g);
        m[k] = adamw_moment1(c, g[k % 2], hn::Mul(m[k], absmax1));
        v[k] = adamw_moment2(c, g[k % 2], hn::Mul(v[k], absmax2));
        hn::Store(m[k], F(), work.m + i);
        hn::Store(v[k], F(), work.v + i);
        largest1 = hn::Max(largest1, hn::BitCast(U(), hn::Abs(m[k])));
        largest2 = hn::Max(largest2, hn::BitCast(U(), v[k]));
      }
    }
    work.bits1 = largest_bits(largest1);
    work.bits2 = largest_bits(largest2);
  }

  /// Second pass: the parameter, the codes and the absmaxes.
  HWY_INLINE void update(std::int64_t block, const AdamWBlock& work) const {
    if (HWY_UNLIKELY(!is_plain(work.bits1) || !is_plain(work.bits2))) {
      return step_blocks_scalar(Algorithm::AdamW, coefficients_, s_, block, block + 1);
    }
    const Scalars c = c_;
    void* const param = s_.param;
    const std::int64_t first = block * kBlockSize;
    auto* codes1 = static_cast<std::uint8_t*>(s_.state1) + first;
    auto* codes2 = static_cast<std::uint8_t*>(s_.state2) + first;
    const VF inverse1 = hn::Set(F(), inverse_of(work.bits1));
    const VF inverse2 = hn::Set(F(), inverse_of(work.bits2));
    for (std::int64_t at = 0; at < kBlockSize; at += kGroup) {
      prefetch(param, first + at, element_bytes(dtype), kGroup);
      VF p[2];
      // Unrolled, so that division, square root and encoding run beside each other.
#pragma GCC unroll 8
      for (std::int64_t k = 0; k < kVectors; ++k) {
        const std::int64_t i = at + k * kLanes;
        if (k % 2 == 0) load_pair<dtype>(param, first + i, p);
        const VF m = hn::Load(F(), work.m + i);
        const VF v = hn::Load(F(), work.v + i);
        const VF root = divide(hn::Sqrt(v), c.correction2, c.inverse_correction2);
        const VF denominator = hn::Add(root, c.epsilon);
        const VF change = hn::Div(hn::Mul(c.step_size, m), denominator);
        p[k % 2] = hn::Add(hn::Mul(p[k % 2], c.decay), change);
        if (k % 2 == 1) store_pair<dtype, kNans>(p, param, first + i - kLanes);
        if (k + 1 == kVectorsBeforeCodes1) {
          encode(codec1_, work.m + at, inverse1, codes1 + at);
        }
      }
      encode(codec2_, work.v + at, inverse2, codes2 + at);
    }
    if constexpr (dtype == DType::bf16) {
      unify_nans(static_cast<std::uint16_t*>(param) + first);
    }
    finish(work.bits1, codes1, s_.absmax1 + block);
    finish(work.bits2, codes2, s_.absmax2 + block);
  }

 private:
  /// The codes of a group of moments.
  template <class Codec>
  HWY_INLINE static void encode(const Codec& codec, const float* moments, VF inverse,
                                std::uint8_t* codes) {
    VF x[kVectors];
    for (std::int64_t k = 0; k < kVectors; ++k) x[k] = hn::Load(F(), moments + k * kLanes);
    codec.template encode<order_of(dtype)>(x, inverse, codes);
  }

  const ShardTensors& s_;
  const Coefficients& coefficients_;
  Scalars c_;
  SignedCodec codec1_;
  UnsignedCodec codec2_;
};

/// Old first moments of one block between the two passes, and the largest bit pattern of new ones.
struct LionBlock {
  alignas(64) float old[kBlockSize];
  std::uint32_t bits;
};

template <DType dtype>
class Lion8bit {
 public:
  Lion8bit(const Coefficients& coefficients, const ShardTensors& s)
      : s_(s), coefficients_(coefficients), c_(broadcast(coefficients)) {}

  HWY_INLINE void moments(std::int64_t block, LionBlock& work) const {
    const Scalars c = c_;
    const void* const grad = s_.grad;
    const std::int64_t first = block * kBlockSize;
    const auto* codes = static_cast<const std::uint8_t*>(s_.state1) + first;
    const VF absmax = hn::Set(F(), s_.absmax1[block]);
    VU largest = hn::Zero(U());
    for (std::int64_t at = 0; at < kBlockSize; at += kGroup) {
      prefetch(grad, first + at, element_bytes(dtype), kGroup);
      prefetch(codes, at, 1, kGroup);
      VF g[kVectors];
      VF old[kVectors];
      for (std::int64_t k = 0; k < kVectors; k += 2) {
        load_pair<dtype>(grad, first + at + k * kLanes, g + k);
      }
      codec_.template decode<order_of(dtype)>(codes + at, old);
      for (std::int64_t k = 0; k < kVectors; ++k) {
        const std::int64_t i = at + k * kLanes;
        old[k] = hn::Mul(old[k], absmax);
        hn::Store(old[k], F(), work.old + i);
        const VF m = lion_moment(c, g[k], old[k]);
        largest = hn::Max(largest, hn::BitCast(U(), hn::Abs(m)));
      }
    }
    work.bits = largest_bits(largest);
  }

  HWY_INLINE void update(std::int64_t block, const LionBlock& work) const {
    if (HWY_UNLIKELY(!is_plain(work.bits))) {
      return step_blocks_scalar(Algorithm::Lion, coefficients_, s_, block, block + 1);
    }
    const Scalars c = c_;
    const void* const grad = s_.grad;
    void* const param = s_.param;
    const std::int64_t first = block * kBlockSize;
    auto* codes = static_cast<std::uint8_t*>(s_.state1) + first;
    const VF inverse = hn::Set(F(), inverse_of(work.bits));
    for (std::int64_t at = 0; at < kBlockSize; at += kGroup) {
      prefetch(param, first + at, element_bytes(dtype), kGroup);
      VF g[kVectors];
      VF p[kVectors];
      VF m[kVectors];
      for (std::int64_t k = 0; k < kVectors; k += 2) {
        load_pair<dtype>(grad, first + at + k * kLanes, g + k);
        load_pair<dtype>(param, first + at + k * kLanes, p + k);
      }
      for (std::int64_t k = 0; k < kVectors; ++k) {
        const VF old = hn::Load(F(), work.old + at + k * kLanes);
        const VF direction = hn::Add(hn::Mul(old, c.beta1), hn::Mul(g[k], c.one_minus_beta1));
        p[k] = lion_param(p[k], c.decay, c.step_size, direction);
        m[k] = lion_moment(c, g[k], old);
      }
      for (std::int64_t k = 0; k < kVectors; k += 2) {
        store_pair<dtype, kNans>(p + k, param, first + at + k * kLanes);
      }
      codec_.template encode<order_of(dtype)>(m, inverse, codes + at);
    }
    if constexpr (dtype == DType::bf16) {
      unify_nans(static_cast<std::uint16_t*>(param) + first);
    }
    finish(work.bits, codes, s_.absmax1 + block);
  }

 private:
  const ShardTensors& s_;
  const Coefficients& coefficients_;
  Scalars c_;
  SignedCodec codec_;
};

/// Both passes over blocks [begin, end), begin < end. The first pass over the next block comes
/// before the second over this one: otherwise the second would wait for the reduction to the absmax
/// at the end of the first.
template <class Rule, class Work>
HWY_INLINE void two_passes(const Rule& rule, std::int64_t begin, std::int64_t end) {
  Work work[2];
  rule.moments(begin, work[begin & 1]);
  for (std::int64_t block = begin + 1; block < end; ++block) {
    rule.moments(block, work[block & 1]);
    rule.update(block - 1, work[(block - 1) & 1]);
  }
  rule.update(end - 1, work[(end - 1) & 1]);
}

template <DType dtype>
void adamw_fp32(const Coefficients& coefficients, const ShardTensors& s, std::int64_t begin,
                std::int64_t end) {
  const Scalars c = broadcast(coefficients);
  void* const param = s.param;
  const void* const grad = s.grad;
  auto* const ms = static_cast<float*>(s.state1);
  auto* const vs = static_cast<float*>(s.state2);
  for (std::int64_t at = begin * kBlockSize; at < end * kBlockSize; at += 2 * kLanes) {
    VF g[2];
    VF p[2];
    load_pair<dtype, Order::consecutive>(grad, at, g);
    load_pair<dtype, Order::consecutive>(param, at, p);
    for (std::int64_t k = 0; k < 2; ++k) {
      const std::int64_t i = at + k * kLanes;
      const VF m = adamw_moment1(c, g[k], hn::LoadU(F(), ms + i));
      const VF v = adamw_moment2(c, g[k], hn::LoadU(F(), vs + i));
      hn::StoreU(m, F(), ms + i);
      hn::StoreU(v, F(), vs + i);
      const VF direction = hn::Div(m, hn::Add(hn::Sqrt(v), c.epsilon));
      p[k] = hn::MulAdd(direction, c.step_size, hn::Mul(p[k], c.decay));
    }
    store_pair<dtype, Nans::any, Order::consecutive>(p, param, at);
  }
}

template <DType dtype>
void lion_fp32(const Coefficients& coefficients, const ShardTensors& s, std::int64_t begin,
               std::int64_t end) {
  const Scalars c = broadcast(coefficients);
  void* const param = s.param;
  const void* const grad = s.grad;
  auto* const ms = static_cast<float*>(s.state1);
  for (std::int64_t at = begin * kBlockSize; at < end * kBlockSize; at += 2 * kLanes) {
    VF g[2];
    VF p[2];
    load_pair<dtype, Order::consecutive>(grad, at, g);
    load_pair<dtype, Order::consecutive>(param, at, p);
    for (std::int64_t k = 0; k < 2; ++k) {
      const std::int64_t i = at + k * kLanes;
      const VF old = hn::LoadU(F(), ms + i);
      const VF direction = adamw_moment1(c, g[k], old);
      p[k] = lion_param(p[k], c.decay, c.step_size, direction);
      hn::StoreU(lion_moment(c, g[k], old), F(), ms + i);
    }
    store_pair<dtype, Nans::any, Order::consecutive>(p, param, at);
  }
}

template <DType dtype>
void step_whole_blocks(Algorithm algorithm, const Coefficients& c, const ShardTensors& s,
                       std::int64_t begin, std::int64_t end) {
  const bool eight_bit = s.format == StateFormat::blockwise_8bit;
  if (algorithm == Algorithm::AdamW) {
    if (eight_bit) return two_passes<AdamW8bit<dtype>, AdamWBlock>({c, s}, begin, end);
    adamw_fp32<dtype>(c, s, begin, end);
  } else {
    if (eight_bit) return two_passes<Lion8bit<dtype>, LionBlock>({c, s}, begin, end);
    lion_fp32<dtype>(c, s, begin, end);
  }
}

void step_blocks(Algorithm algorithm, const Coefficients& c, const ShardTensors& s,
                 std::int64_t first_block, std::int64_t end_block) noexcept {
  const std::int64_t whole = std::min(end_block, s.numel / kBlockSize);
  if (first_block < whole) {
    switch (s.dtype) {
      case DType::fp32:
        step_whole_blocks<DType::fp32>(algorithm, c, s, first_block, whole);
        break;
      case DType::bf16:
        step_whole_blocks<DType::bf16>(algorithm, c, s, first_block, whole);
        break;
      case DType::fp16:
        step_whole_blocks<DType::fp16>(algorithm, c, s, first_block, whole);
        break;
    }
  }
  if (whole < end_block) {
    step_blocks_scalar(algorithm, c, s, std::max(whole, first_block), end_block);
  }
}

StepBlocks kernel() { return &step_blocks; }

#else

StepBlocks kernel() { return &step_blocks_scalar; }

#endif

}  // namespace

StepBlocks exported_kernel() { return kernel(); }
std::int64_t exported_target() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace kernels
}  // namespace stepscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <iterator>
#include <utility>

#include "core/error.h"

namespace stepscope {
namespace kernels {
namespace {

HWY_EXPORT(exported_kernel);
HWY_EXPORT(exported_target);

std::string target_name(std::int64_t target) {
  switch (target) {
    case HWY_AVX3_DL:
      return "AVX-512 VBMI";
    case HWY_AVX2:
      return "AVX2";
    default:
      return "baseline";
  }
}

/// Targets that this processor supports and this build has, best first, whatever is forced.
std::vector<std::int64_t> supported_targets() {
  const std::int64_t chosen = HWY_DYNAMIC_DISPATCH(exported_target)();
  hwy::SetSupportedTargetsForTest(0);
  std::vector<std::int64_t> targets;
  for (const std::int64_t target : {HWY_AVX3_DL, HWY_AVX2}) {
    if ((hwy::SupportedTargets() & HWY_TARGETS & target) != 0) targets.push_back(target);
  }
  if (targets.empty() || HWY_STATIC_TARGET > targets.back()) targets.push_back(HWY_STATIC_TARGET);
  hwy::SetSupportedTargetsForTest(chosen);
  return targets;
}

}  // namespace

StepBlocks simd_step_blocks() { return HWY_DYNAMIC_DISPATCH(exported_kernel)(); }

std::string cpu_step_target() { return target_name(HWY_DYNAMIC_DISPATCH(exported_target)()); }

std::vector<std::string> cpu_step_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : supported_targets()) names.push_back(target_name(target));
  return names;
}

void force_cpu_step_target(const std::string& target) {
  if (target.empty()) {
    hwy::SetSupportedTargetsForTest(0);
    return;
  }
  for (const std::int64_t candidate : supported_targets()) {
    if (target_name(candidate) == target) {
      hwy::SetSupportedTargetsForTest(candidate);
      return;
    }
  }
  throw Error("this processor and build have no kernel for '" + target + "'",
              "choose one that cpu_step_targets() names");
}

}  // namespace kernels
}  // namespace stepscope
#endif  // HWY_ONCE
