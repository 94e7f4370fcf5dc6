// Purpose: decoding and encoding of 8-bit states, 32 elements at a time, for AVX2: decoding with
// one load an element, encoding by the straight pieces of kernels/encode_pieces.h. Included by
// kernels/simd_blocks.cc, once, for that target alone.
//
// Usage:
//     const SignedCodec codec;
//     VF x[kVectors];
//     codec.decode<Order::consecutive>(codes, x);  // values in [-1, 1], not yet times absmax
//     codec.encode<Order::consecutive>(x, inverse, codes);  // inverse: the reciprocal of the
//     absmax
//
// Caveats: encode() needs finite x, for UnsignedCodec none of them with a sign bit, and a finite
// inverse with |x * inverse| <= 1 up to rounding. The kernels leave all other blocks to the scalar
// code. AVX2 can choose by index among eight numbers in a register, so a piece's slope and offset
// cost one instruction each, where an entry of a table would cost two loads an element. What needs
// no more than 16 bits is done for two vectors at once: words, the even ones of the first vector
// and the odd ones of the second. No gather instruction is used: it takes half as long again as the
// loads here, on Zen 3 and on Zen 5.

constexpr std::int64_t kGroup = 32;  // elements taken at once
constexpr std::int64_t kVectors = kGroup / kLanes;

/// How many vectors of parameters AdamW computes before it encodes the first moment: all. With
/// sixteen registers, encoding in between makes the step 7 % slower.
constexpr std::int64_t kVectorsBeforeCodes1 = kVectors;

/// table[index[0]], table[index[stride]] to table[index[7 * stride]].
template <int stride>
HWY_INLINE __m256 look_up_8(const float* table, const std::uint8_t* index) {
  const auto entry = [&](int i) HWY_ATTR { return _mm256_broadcast_ss(table + index[i * stride]); };
  const __m256 pair01 = _mm256_blend_ps(entry(0), entry(1), 0x02);
  const __m256 pair23 = _mm256_blend_ps(entry(2), entry(3), 0x08);
  const __m256 pair45 = _mm256_blend_ps(entry(4), entry(5), 0x20);
  const __m256 pair67 = _mm256_blend_ps(entry(6), entry(7), 0x80);
  return _mm256_blend_ps(_mm256_blend_ps(pair01, pair23, 0x0c),
                         _mm256_blend_ps(pair45, pair67, 0xc0), 0xf0);
}

/// u * 32767.5 + 0.5 for u = x * inverse + 1: the quantizer's index before truncation. Fusing gives
/// the same integer as two roundings for every u.
HWY_INLINE __m256 index_number(VF x, VF inverse) {
  const __m256 u = _mm256_add_ps(_mm256_mul_ps(x.raw, inverse.raw), _mm256_set1_ps(1.0f));
  return _mm256_fmadd_ps(u, _mm256_set1_ps(32767.5f), _mm256_set1_ps(0.5f));
}

/// Words whose bits are those of `first` and `second` from bit `from` on, even and odd ones.
template <int from>
HWY_INLINE __m256i words_of(__m256i first, __m256i second) {
  constexpr int kOdd = 0xaa;
  return _mm256_blend_epi16(_mm256_srli_epi32(first, from), _mm256_slli_epi32(second, 16 - from),
                            kOdd);
}

/// The piece of each j in the low byte of its word. The high byte is 0x80, which shuffle_epi8 turns
/// into 0.
HWY_INLINE __m256i pieces_of(const EncodePieces& pieces, __m256i j) {
  __m256i piece = _mm256_set1_epi16(static_cast<short>(0x8000));
  for (const std::int16_t last : pieces.last_index) {
    piece = _mm256_sub_epi16(piece, _mm256_cmpgt_epi16(j, _mm256_set1_epi16(last)));
  }
  return piece;
}

/// trunc(slope * x + offset) for the pieces in the low three bits of each dword.
HWY_INLINE __m256i on_line(const EncodePieces& pieces, __m256i piece, __m256 x) {
  const __m256 slope = _mm256_permutevar8x32_ps(_mm256_loadu_ps(pieces.slope.data()), piece);
  const __m256 offset = _mm256_permutevar8x32_ps(_mm256_loadu_ps(pieces.offset.data()), piece);
  return _mm256_cvttps_epi32(_mm256_fmadd_ps(slope, x, offset));
}

/// The words of the codes of the words j; `first` and `second` are the two vectors' x.
HWY_INLINE __m256i code_words(const EncodePieces& pieces, __m256i j, __m256 first, __m256 second) {
  const __m256i piece = pieces_of(pieces, j);
  const __m256i codes = words_of<0>(on_line(pieces, piece, first),
                                    on_line(pieces, _mm256_srli_epi32(piece, 16), second));
  const __m256i last = _mm256_shuffle_epi8(
      _mm256_broadcastsi128_si256(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(pieces.last_code.data()))),
      piece);
  const __m256i top = _mm256_cmpgt_epi16(j, _mm256_set1_epi16(pieces.last_before_top));
  return _mm256_sub_epi16(_mm256_min_epi16(codes, last), top);
}

/// The words of a group as bytes, saturated.
template <Order order>
HWY_INLINE void store_codes(const __m256i words[2], std::uint8_t* codes) {
  const __m256i lanes = _mm256_packus_epi16(words[0], words[1]);
  __m256i in_order;
  if constexpr (order == Order::pairs) {
    // A 128-bit lane holds half of the first sixteen elements, then half of the others.
    in_order = _mm256_permute4x64_epi64(lanes, 0xd8);
  } else {
    // Within a lane: four elements of the vectors 0 and 1 by turns, then of 2 and 3.
    const __m256i by_vector = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    // Dword 4l + v holds the l-th half of vector v.
    const __m256i halves = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    in_order = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(lanes, by_vector), halves);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), in_order);
}

template <Order order>
HWY_INLINE void decode_by(const std::uint32_t* table, const std::uint8_t* codes, VF out[kVectors]) {
  const float* numbers = reinterpret_cast<const float*>(table);
  for (std::int64_t i = 0; i < kVectors; ++i) {
    if constexpr (order == Order::pairs) {
      out[i] = VF{look_up_8<2>(numbers, codes + i / 2 * 2 * kLanes + i % 2)};
    } else {
      out[i] = VF{look_up_8<1>(numbers, codes + i * kLanes)};
    }
  }
}

class SignedCodec {
 public:
  template <Order order>
  HWY_INLINE void decode(const std::uint8_t* codes, VF out[kVectors]) const {
    decode_by<order>(kSignedCodeBits.data(), codes, out);
  }

  template <Order order>
  HWY_INLINE void encode(const VF x[kVectors], VF inverse, std::uint8_t* codes) const {
    __m256i words[2];
    for (int i = 0; i < 2; ++i) {
      const __m256i index = words_of<0>(_mm256_cvttps_epi32(index_number(x[2 * i], inverse)),
                                        _mm256_cvttps_epi32(index_number(x[2 * i + 1], inverse)));
      // -1 where x is positive, that is the index above 32767; there j is the index less 32768,
      // elsewhere 32767 less the index.
      const __m256i positive = _mm256_srai_epi16(index, 15);
      const __m256i j =
          _mm256_xor_si256(_mm256_xor_si256(index, _mm256_set1_epi16(0x7fff)), positive);
      const __m256 first = _mm256_cvtepi32_ps(_mm256_and_si256(j, _mm256_set1_epi32(0xffff)));
      const __m256 second = _mm256_cvtepi32_ps(_mm256_srli_epi32(j, 16));
      const __m256i code = code_words(kSignedPieces, j, first, second);
      // 127 + code or 127 - code: to negate is to flip all bits and to add 1. Saturation makes a
      // code below 0 one of 0.
      words[i] = _mm256_sub_epi16(_mm256_add_epi16(_mm256_set1_epi16(127), positive),
                                  _mm256_xor_si256(code, positive));
    }
    store_codes<order>(words, codes);
  }
};

class UnsignedCodec {
 public:
  template <Order order>
  HWY_INLINE void decode(const std::uint8_t* codes, VF out[kVectors]) const {
    decode_by<order>(kUnsignedCodeBits.data(), codes, out);
  }

  template <Order order>
  HWY_INLINE void encode(const VF x[kVectors], VF inverse, std::uint8_t* codes) const {
    // For x >= 0 the number lies in [32768, 65536): its mantissa is j and eight bits of fraction.
    const __m256i whole = _mm256_set1_epi32(-256);
    __m256i words[2];
    for (int i = 0; i < 2; ++i) {
      const __m256i first = _mm256_castps_si256(index_number(x[2 * i], inverse));
      const __m256i second = _mm256_castps_si256(index_number(x[2 * i + 1], inverse));
      const __m256i j = words_of<8>(first, second);
      words[i] = code_words(kUnsignedPieces, j, _mm256_castsi256_ps(_mm256_and_si256(first, whole)),
                            _mm256_castsi256_ps(_mm256_and_si256(second, whole)));
    }
    store_codes<order>(words, codes);
  }
};
