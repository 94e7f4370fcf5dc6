// Purpose: decoding and encoding of 8-bit states, 32 elements at a time, with one load an element.
// Included by kernels/simd_blocks.cc, once, for AVX-512 without byte permutations.
//
// Usage:
//     const SignedCodec codec;
//     VF x[kVectors]; codec.decode(codes, x);  // values in [-1, 1], not yet times absmax
//     codec.encode(x, inverse, codes);         // x times inverse, the reciprocal of the absmax
//
// Caveats: encode() needs finite x, for UnsignedCodec none of them with a sign bit, and a finite
// inverse with |x * inverse| <= 1 up to rounding. The kernels leave all other blocks to the scalar
// code.

constexpr std::int64_t kGroup = 32;  // elements taken at once
constexpr std::int64_t kVectors = kGroup / kLanes;

#include "kernels/look_up-inl.h"

/// The table's entries for the first kLanes indices.
template <class Index>
HWY_INLINE VF look_up(const std::uint32_t* table, const Index* index) {
  const float* numbers = reinterpret_cast<const float*>(table);
  return VF{_mm512_insertf32x8(_mm512_castps256_ps512(look_up_8(numbers, index)),
                               look_up_8(numbers, index + 8), 1)};
}

/// The lowest bytes of a group of dwords, which are below 256.
HWY_INLINE void store_bytes(const VU dwords[kVectors], std::uint8_t* bytes) {
  for (std::int64_t i = 0; i < kVectors; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + i * kLanes),
                     _mm512_cvtepi32_epi8(dwords[i].raw));
  }
}

template <CodeTable table>
class LookupCodec {
 public:
  LookupCodec()
      : values_(table == CodeTable::signed_codes ? kSignedCodeBits.data()
                                                 : kUnsignedCodeBits.data()),
        entries_(encode_bins(table).entries.data()) {}

  HWY_INLINE void decode(const std::uint8_t* codes, VF out[kVectors]) const {
    for (std::int64_t i = 0; i < kVectors; ++i) out[i] = look_up(values_, codes + i * kLanes);
  }

  HWY_INLINE void encode(const VF x[kVectors], VF inverse, std::uint8_t* codes) const {
    constexpr int kShift = table == CodeTable::signed_codes ? 17 : 16;
    const VF one = hn::Set(F(), 1.0f);
    VU code[kVectors];
    for (std::int64_t i = 0; i < kVectors; ++i) {
      const VF u = hn::Add(hn::Mul(x[i], inverse), one);
      const VU bits = hn::BitCast(U(), hn::Sub(u, one));
      alignas(64) std::uint32_t bins[kLanes];
      hn::Store(hn::ShiftRight<kShift>(bits), U(), bins);
      const VU entry = hn::BitCast(U(), look_up(entries_, bins));
      VU low = hn::And(bits, hn::Set(U(), (1u << kShift) - 1));
      if constexpr (table == CodeTable::signed_codes) {
        const VU zero = hn::Zero(U());
        low.raw = _mm512_mask_sub_epi32(low.raw, _mm512_movepi32_mask(bits.raw), zero.raw, low.raw);
      }
      code[i] = hn::ShiftRight<kShift>(hn::Add(entry, low));
    }
    store_bytes(code, codes);
  }

 private:
  const std::uint32_t* values_;
  const std::uint32_t* entries_;
};

using SignedCodec = LookupCodec<CodeTable::signed_codes>;
using UnsignedCodec = LookupCodec<CodeTable::unsigned_codes>;
