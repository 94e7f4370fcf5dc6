// Purpose: decoding and encoding of 8-bit states, a group of elements at a time, with one load an
// element. Included by kernels/simd_blocks.cc, once a target.
//
// Usage:
//     const SignedCodec codec;
//     VF x[kVectors]; codec.decode(codes, x);  // values in [-1, 1], not yet times absmax
//     codec.encode(x, inverse, codes);         // x times inverse, the reciprocal of the absmax
//
// Caveats: encode() needs finite x, for UnsignedCodec none of them with a sign bit, and a finite
// inverse with |x * inverse| <= 1 up to rounding. The kernels leave all other blocks to the scalar
// code. No gather instruction is used: on Zen 5 it is slower than the loads below by half.

constexpr std::int64_t kGroup = 32;  // elements taken at once
constexpr std::int64_t kVectors = kGroup / kLanes;

/// table[index[0]] to table[index[7]].
template <class Index>
HWY_INLINE __m256 look_up_8(const float* table, const Index* index) {
  const auto entry = [&](int i) HWY_ATTR { return _mm256_broadcast_ss(table + index[i]); };
  const __m256 pair01 = _mm256_blend_ps(entry(0), entry(1), 0x02);
  const __m256 pair23 = _mm256_blend_ps(entry(2), entry(3), 0x08);
  const __m256 pair45 = _mm256_blend_ps(entry(4), entry(5), 0x20);
  const __m256 pair67 = _mm256_blend_ps(entry(6), entry(7), 0x80);
  return _mm256_blend_ps(_mm256_blend_ps(pair01, pair23, 0x0c),
                         _mm256_blend_ps(pair45, pair67, 0xc0), 0xf0);
}

/// The table's entries for the first kLanes indices.
template <class Index>
HWY_INLINE VF look_up(const std::uint32_t* table, const Index* index) {
  const float* numbers = reinterpret_cast<const float*>(table);
#if HWY_TARGET == HWY_AVX2
  return VF{look_up_8(numbers, index)};
#else
  return VF{_mm512_insertf32x8(_mm512_castps256_ps512(look_up_8(numbers, index)),
                               look_up_8(numbers, index + 8), 1)};
#endif
}

/// The lowest bytes of a group of dwords, which are below 256.
HWY_INLINE void store_bytes(const VU dwords[kVectors], std::uint8_t* bytes) {
#if HWY_TARGET == HWY_AVX2
  const __m256i words01 = _mm256_packus_epi32(dwords[0].raw, dwords[1].raw);
  const __m256i words23 = _mm256_packus_epi32(dwords[2].raw, dwords[3].raw);
  const __m256i lanes = _mm256_packus_epi16(words01, words23);
  // Packing works within 128-bit lanes: dword 4l + v holds the l-th half of vector v.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), _mm256_permutevar8x32_epi32(lanes, order));
#else
  for (std::int64_t i = 0; i < kVectors; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + i * kLanes),
                     _mm512_cvtepi32_epi8(dwords[i].raw));
  }
#endif
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
#if HWY_TARGET == HWY_AVX2
      if constexpr (table == CodeTable::signed_codes)
        low.raw = _mm256_sign_epi32(low.raw, bits.raw);
#else
      if constexpr (table == CodeTable::signed_codes) {
        const VU zero = hn::Zero(U());
        low.raw = _mm512_mask_sub_epi32(low.raw, _mm512_movepi32_mask(bits.raw), zero.raw, low.raw);
      }
#endif
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
