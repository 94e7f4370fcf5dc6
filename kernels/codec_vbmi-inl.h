// Purpose: decoding and encoding of 8-bit states, 128 elements at a time, with the byte
// permutations of AVX-512 VBMI. Included by kernels/simd_blocks.cc, once, for that target alone.
//
// Usage and what encode() may be given: see kernels/codec_pieces-inl.h.
//
// Caveats: on Zen 5 a permutation of 128 bytes takes half a cycle and a gather of 16 numbers
// 12.5 cycles, which is why nothing here gathers. The tables are those of kernels/byte_tables.h.
// Loading them is what limits the speed, so each is loaded once for two registers of 64 codes.

constexpr std::int64_t kGroup = 128;  // elements taken at once
constexpr std::int64_t kVectors = kGroup / kLanes;

/// How many vectors of parameters AdamW computes before it encodes the first moment. A division and
/// a square root keep their unit busy for 20 cycles a vector on Zen 4; encoding between them fills
/// these, and makes the step a tenth faster than encoding behind them.
constexpr std::int64_t kVectorsBeforeCodes1 = kVectors / 2;

/// 128 bytes: one for each element of a group.
struct Bytes2 {
  __m512i half[2];
};

/// One bit for each element of a group.
struct Mask2 {
  __mmask64 half[2];
};

HWY_INLINE __m512i load64(const std::uint8_t* bytes) { return _mm512_loadu_si512(bytes); }

/// table[index & 127], byte by byte.
HWY_INLINE Bytes2 look_up_128(const std::uint8_t* table, const Bytes2& index) {
  const __m512i low = load64(table);
  const __m512i high = load64(table + 64);
  return {{_mm512_permutex2var_epi8(low, index.half[0], high),
           _mm512_permutex2var_epi8(low, index.half[1], high)}};
}

/// table[index], where `high` says which indices are above 127.
HWY_INLINE Bytes2 look_up_256(const std::uint8_t* table, const Bytes2& index, const Mask2& high) {
  const Bytes2 below = look_up_128(table, index);
  const Bytes2 above = look_up_128(table + 128, index);
  return {{_mm512_mask_blend_epi8(high.half[0], below.half[0], above.half[0]),
           _mm512_mask_blend_epi8(high.half[1], below.half[1], above.half[1])}};
}

/// Where `mask` is set, table[index & 63] instead of `otherwise`.
HWY_INLINE Bytes2 look_up_64(const Bytes2& otherwise, const Mask2& mask, const std::uint8_t* table,
                             const Bytes2& index) {
  const __m512i entries = load64(table);
  return {{_mm512_mask_permutexvar_epi8(otherwise.half[0], mask.half[0], index.half[0], entries),
           _mm512_mask_permutexvar_epi8(otherwise.half[1], mask.half[1], index.half[1], entries)}};
}

/// Where `mask` is set, `yes`, elsewhere `no`.
HWY_INLINE Bytes2 select(const Mask2& mask, const Bytes2& yes, const Bytes2& no) {
  return {{_mm512_mask_blend_epi8(mask.half[0], no.half[0], yes.half[0]),
           _mm512_mask_blend_epi8(mask.half[1], no.half[1], yes.half[1])}};
}

/// Where `mask` is set and no bit of `bits` is set in the byte.
HWY_INLINE Mask2 none_of(const Mask2& mask, const Bytes2& bytes, int bits) {
  const __m512i tested = _mm512_set1_epi8(static_cast<char>(bits));
  return {{_mm512_mask_testn_epi8_mask(mask.half[0], bytes.half[0], tested),
           _mm512_mask_testn_epi8_mask(mask.half[1], bytes.half[1], tested)}};
}

HWY_INLINE Mask2 top_bits(const Bytes2& bytes) {
  return {{_mm512_movepi8_mask(bytes.half[0]), _mm512_movepi8_mask(bytes.half[1])}};
}

/// Puts the codes of 64 elements where unpacking bytes and words within 128-bit lanes gives vectors
/// of that order: byte 4v + b of lane l becomes number 4l + b of vector v.
template <Order order>
HWY_INLINE __m512i before_unpacking(__m512i codes) {
  if constexpr (order == Order::pairs) {
    alignas(64) static constexpr std::array<std::uint8_t, 64> kPairs = [] {
      std::array<std::uint8_t, 64> from{};
      for (std::size_t i = 0; i < 64; ++i) {
        const std::size_t v = i / 4 % 4;
        from[i] = static_cast<std::uint8_t>(v / 2 * 32 + 2 * (i / 16 * 4 + i % 4) + v % 2);
      }
      return from;
    }();
    return _mm512_permutexvar_epi8(_mm512_load_si512(kPairs.data()), codes);
  } else {
    const __m512i from = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(from, codes);
  }
}

/// Words whose bits are those of 32 dwords from bit `first` on, in the order of the elements.
template <Order order, int first>
HWY_INLINE __m512i words_of(__m512i a, __m512i b) {
  static_assert(first % 8 == 0);
  if constexpr (order == Order::pairs) {
    const __m512i even = _mm512_srli_epi32(a, first);
    return _mm512_mask_mov_epi16(even, 0xaaaaaaaa, _mm512_slli_epi32(b, 16 - first));
  } else {
    alignas(64) static constexpr std::array<std::uint8_t, 64> kBytes = [] {
      std::array<std::uint8_t, 64> from{};
      for (std::size_t i = 0; i < 64; ++i) {
        from[i] = static_cast<std::uint8_t>(4 * (i / 2) + first / 8 + i % 2);
      }
      return from;
    }();
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(kBytes.data()), b);
  }
}

/// From four planes of bytes, put in place by before_unpacking(), four vectors of 16 numbers.
HWY_INLINE void interleave(__m512i byte0, __m512i byte1, __m512i byte2, __m512i byte3, VF out[4]) {
  const __m512i low01 = _mm512_unpacklo_epi8(byte0, byte1);
  const __m512i high01 = _mm512_unpackhi_epi8(byte0, byte1);
  const __m512i low23 = _mm512_unpacklo_epi8(byte2, byte3);
  const __m512i high23 = _mm512_unpackhi_epi8(byte2, byte3);
  out[0] = VF{_mm512_castsi512_ps(_mm512_unpacklo_epi16(low01, low23))};
  out[1] = VF{_mm512_castsi512_ps(_mm512_unpackhi_epi16(low01, low23))};
  out[2] = VF{_mm512_castsi512_ps(_mm512_unpacklo_epi16(high01, high23))};
  out[3] = VF{_mm512_castsi512_ps(_mm512_unpackhi_epi16(high01, high23))};
}

/// Bytes of the even (of the odd) dwords of two vectors, in order.
HWY_INLINE __m512i even_dwords(__m512i a, __m512i b) {
  const __m512i order =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_epi32(a, order, b);
}
HWY_INLINE __m512i odd_dwords(__m512i a, __m512i b) {
  const __m512i order =
      _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_permutex2var_epi32(a, order, b);
}

/// Of 64 words: the 8 bits from bit `first` on, and those from bit `second` on, each as 64 bytes.
template <int first, int second>
HWY_INLINE void fields(__m512i words0, __m512i words1, __m512i* firsts, __m512i* seconds) {
  const auto control = [](int bit) {
    std::uint64_t bytes = 0;
    for (int word = 3; word >= 0; --word)
      bytes = bytes << 8 | static_cast<std::uint64_t>(16 * word + bit);
    return bytes;
  };
  const __m512i select =
      _mm512_set1_epi64(static_cast<long long>(control(second) << 32 | control(first)));
  const __m512i fields0 = _mm512_multishift_epi64_epi8(select, words0);
  const __m512i fields1 = _mm512_multishift_epi64_epi8(select, words1);
  *firsts = even_dwords(fields0, fields1);
  *seconds = odd_dwords(fields0, fields1);
}

/// One more than `codes` where the low byte of j is above `last`.
HWY_INLINE __m512i step_up(__m512i codes, __m512i low, __m512i last) {
  const __mmask64 above = _mm512_cmpgt_epu8_mask(low, last);
  return _mm512_mask_add_epi8(codes, above, codes, _mm512_set1_epi8(1));
}

/// u * 32767.5 + 0.5 for u = x * inverse + 1: the quantizer's index before truncation. Fusing gives
/// the same integer as two roundings for every u.
HWY_INLINE __m512 index_number(VF x, VF inverse) {
  const __m512 u = _mm512_add_ps(_mm512_mul_ps(x.raw, inverse.raw), _mm512_set1_ps(1.0f));
  return _mm512_fmadd_ps(u, _mm512_set1_ps(32767.5f), _mm512_set1_ps(0.5f));
}

/// The bytes of the low `first` and `second` fields of 128 words.
template <int first, int second>
HWY_INLINE void fields(const __m512i words[4], Bytes2* firsts, Bytes2* seconds) {
  fields<first, second>(words[0], words[1], &firsts->half[0], &seconds->half[0]);
  fields<first, second>(words[2], words[3], &firsts->half[1], &seconds->half[1]);
}

constexpr Mask2 kAll = {{~std::uint64_t{0}, ~std::uint64_t{0}}};

class SignedCodec {
 public:
  SignedCodec() : tables_(signed_byte_tables()) {}

  template <Order order>
  HWY_INLINE void decode(const std::uint8_t* codes, VF out[kVectors]) const {
    Bytes2 offset, k;
    Mask2 one;
    for (int h = 0; h < 2; ++h) {
      const __m512i code = before_unpacking<order>(load64(codes + 64 * h));
      offset.half[h] = _mm512_sub_epi8(code, _mm512_set1_epi8(127));
      k.half[h] = _mm512_abs_epi8(offset.half[h]);
      // Code 255 is the one k = 128, which would look up k = 0, and whose sign bit is not one.
      one.half[h] = _mm512_cmpeq_epi8_mask(code, _mm512_set1_epi8(-1));
    }
    const Bytes2 byte0 = look_up_128(tables_.decode[0].data(), k);
    const Bytes2 byte1 = look_up_128(tables_.decode[1].data(), k);
    Bytes2 byte2 = look_up_128(tables_.decode[2].data(), k);
    Bytes2 byte3 = look_up_128(tables_.decode[3].data(), k);
    for (int h = 0; h < 2; ++h) {
      const __m512i top = _mm512_set1_epi8(static_cast<char>(0x80));
      constexpr int kOrAnd = 0xf8;  // a | (b & c)
      byte3.half[h] = _mm512_ternarylogic_epi64(byte3.half[h], offset.half[h], top, kOrAnd);
      byte3.half[h] = _mm512_mask_mov_epi8(byte3.half[h], one.half[h], _mm512_set1_epi8(0x3f));
      byte2.half[h] = _mm512_mask_mov_epi8(byte2.half[h], one.half[h], top);
      interleave(byte0.half[h], byte1.half[h], byte2.half[h], byte3.half[h], out + 4 * h);
    }
  }

  template <Order order>
  HWY_INLINE void encode(const VF x[kVectors], VF inverse, std::uint8_t* codes) const {
    __m512i words[4];
    for (int i = 0; i < 4; ++i) {
      const __m512i a = _mm512_cvttps_epi32(index_number(x[2 * i], inverse));
      const __m512i b = _mm512_cvttps_epi32(index_number(x[2 * i + 1], inverse));
      words[i] = fold(words_of<order, 0>(a, b));
    }
    Bytes2 low, coarse, middle, fine;
    fields<0, 8>(words, &low, &coarse);
    fields<6, 4>(words, &middle, &fine);
    // Which elements a finer level holds; bit 7 of `coarse` is the sign of x.
    const Mask2 below4096 = none_of(kAll, coarse, 0x70);
    const Mask2 below1024 = none_of(below4096, middle, 0x30);
    const Mask2 below64 = none_of(below1024, fine, 0x3c);
    Bytes2 code = look_up_128(tables_.coarse.code.data(), coarse);
    Bytes2 last = look_up_128(tables_.coarse.last.data(), coarse);
    code = look_up_64(code, below4096, tables_.middle.code.data(), middle);
    last = look_up_64(last, below4096, tables_.middle.last.data(), middle);
    code = look_up_64(code, below1024, tables_.fine.code.data(), fine);
    last = look_up_64(last, below1024, tables_.fine.last.data(), fine);
    for (int h = 0; h < 2; ++h) code.half[h] = step_up(code.half[h], low.half[h], last.half[h]);
    code = look_up_64(code, below64, tables_.exact.data(), low);
    const Mask2 positive = top_bits(coarse);
    for (int h = 0; h < 2; ++h) {
      const __m512i mirrored =
          _mm512_mask_subs_epu8(code.half[h], _knot_mask64(positive.half[h]),
                                _mm512_set1_epi8(static_cast<char>(254)), code.half[h]);
      _mm512_storeu_si512(codes + 64 * h, mirrored);
    }
  }

 private:
  /// j in the low 15 bits, and in bit 15 whether x is positive (i >= 32768).
  static HWY_INLINE __m512i fold(__m512i index) {
    const __m512i positive = _mm512_srai_epi16(index, 15);
    constexpr int kXorAndNot = 0xd2;  // a ^ (~b & c)
    return _mm512_ternarylogic_epi64(index, positive, _mm512_set1_epi16(0x7fff), kXorAndNot);
  }

  const SignedByteTables& tables_;
};

class UnsignedCodec {
 public:
  UnsignedCodec() : tables_(unsigned_byte_tables()) {}

  template <Order order>
  HWY_INLINE void decode(const std::uint8_t* codes, VF out[kVectors]) const {
    const Bytes2 code = {
        {before_unpacking<order>(load64(codes)), before_unpacking<order>(load64(codes + 64))}};
    const Mask2 high = top_bits(code);
    const Bytes2 byte0 = look_up_256(tables_.decode[0].data(), code, high);
    const Bytes2 byte1 = look_up_256(tables_.decode[1].data(), code, high);
    const Bytes2 byte2 = look_up_256(tables_.decode[2].data(), code, high);
    const Bytes2 byte3 = look_up_256(tables_.decode[3].data(), code, high);
    for (int h = 0; h < 2; ++h) {
      interleave(byte0.half[h], byte1.half[h], byte2.half[h], byte3.half[h], out + 4 * h);
    }
  }

  template <Order order>
  HWY_INLINE void encode(const VF x[kVectors], VF inverse, std::uint8_t* codes) const {
    // For x >= 0 the number lies in [32768, 65536): its mantissa is j and eight bits of fraction.
    __m512i words[4];
    for (int i = 0; i < 4; ++i) {
      words[i] = words_of<order, 8>(_mm512_castps_si512(index_number(x[2 * i], inverse)),
                                    _mm512_castps_si512(index_number(x[2 * i + 1], inverse)));
    }
    Bytes2 low, coarse, middle, fine;
    fields<0, 7>(words, &low, &coarse);
    fields<5, 3>(words, &middle, &fine);
    const Mask2 below4096 = none_of(kAll, coarse, 0xe0);
    const Mask2 below512 = none_of(below4096, middle, 0x70);
    const Mask2 below64 = none_of(below512, fine, 0x38);
    const Mask2 high = top_bits(coarse);
    Bytes2 code = look_up_256(tables_.coarse.code.data(), coarse, high);
    Bytes2 last = look_up_256(tables_.coarse.last.data(), coarse, high);
    code = select(below4096, look_up_128(tables_.middle.code.data(), middle), code);
    last = select(below4096, look_up_128(tables_.middle.last.data(), middle), last);
    code = look_up_64(code, below512, tables_.fine.code.data(), fine);
    last = look_up_64(last, below512, tables_.fine.last.data(), fine);
    for (int h = 0; h < 2; ++h) code.half[h] = step_up(code.half[h], low.half[h], last.half[h]);
    code = look_up_64(code, below64, tables_.exact.data(), low);
    _mm512_storeu_si512(codes, code.half[0]);
    _mm512_storeu_si512(codes + 64, code.half[1]);
  }

 private:
  const UnsignedByteTables& tables_;
};
