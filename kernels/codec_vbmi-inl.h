// Purpose: decoding and encoding of 8-bit states, 64 elements at a time, with the byte permutations
// of AVX-512 VBMI. Included by kernels/simd_blocks.cc, once, for that target alone.
//
// Usage and what encode() may be given: see kernels/codec_gather-inl.h.
//
// Caveats: on Zen 5 a permutation of 128 bytes takes half a cycle and a gather of 16 numbers
// 12.5 cycles, which is why nothing here gathers. The tables are those of kernels/byte_tables.h.

HWY_INLINE __m512i load64(const std::uint8_t* bytes) { return _mm512_loadu_si512(bytes); }

/// table[index & 127], byte by byte.
HWY_INLINE __m512i look_up_128(const std::uint8_t* table, __m512i index) {
  return _mm512_permutex2var_epi8(load64(table), index, load64(table + 64));
}

/// table[index], where `high` says which indices are above 127.
HWY_INLINE __m512i look_up_256(const std::uint8_t* table, __m512i index, __mmask64 high) {
  return _mm512_mask_blend_epi8(high, look_up_128(table, index), look_up_128(table + 128, index));
}

/// Puts dword 4v + l of 64 codes at position 4l + v, so that unpacking bytes and words within
/// 128-bit lanes gives the elements in order.
HWY_INLINE __m512i transpose_dwords(__m512i codes) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, codes);
}

/// From four planes of bytes, in the order of transpose_dwords, four vectors of 16 numbers.
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

class SignedCodec {
 public:
  SignedCodec() : tables_(signed_byte_tables()) {}

  HWY_INLINE void decode(const std::uint8_t* codes, VF out[4]) const {
    const __m512i code = transpose_dwords(load64(codes));
    const __m512i offset = _mm512_sub_epi8(code, _mm512_set1_epi8(127));
    const __m512i k = _mm512_abs_epi8(offset);
    // Code 255 is the one k = 128, which would look up k = 0, and whose sign bit is not one.
    const __mmask64 one = _mm512_cmpeq_epi8_mask(code, _mm512_set1_epi8(-1));
    const __m512i byte0 = look_up_128(tables_.decode[0].data(), k);
    const __m512i byte1 = look_up_128(tables_.decode[1].data(), k);
    const __m512i byte2 = _mm512_mask_mov_epi8(look_up_128(tables_.decode[2].data(), k), one,
                                               _mm512_set1_epi8(static_cast<char>(0x80)));
    const __m512i magnitude3 = look_up_128(tables_.decode[3].data(), k);
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i signed3 = _mm512_ternarylogic_epi64(
        magnitude3, offset, _mm512_set1_epi8(static_cast<char>(0x80)), kOrAnd);
    const __m512i byte3 = _mm512_mask_mov_epi8(signed3, one, _mm512_set1_epi8(0x3f));
    interleave(byte0, byte1, byte2, byte3, out);
  }

  HWY_INLINE void encode(const VF x[4], VF inverse, std::uint8_t* codes) const {
    __m512i index[4];
    for (int i = 0; i < 4; ++i) index[i] = _mm512_cvttps_epi32(index_number(x[i], inverse));
    const __m512i words0 = fold(low_words(index[0], index[1]));
    const __m512i words1 = fold(low_words(index[2], index[3]));
    __m512i low, coarse, middle, fine;
    fields<0, 8>(words0, words1, &low, &coarse);
    fields<6, 4>(words0, words1, &middle, &fine);
    // Which elements a finer level holds; bit 7 of `coarse` is the sign of x.
    const __mmask64 below4096 = _mm512_testn_epi8_mask(coarse, _mm512_set1_epi8(0x70));
    const __mmask64 below1024 =
        _mm512_mask_testn_epi8_mask(below4096, middle, _mm512_set1_epi8(0x30));
    const __mmask64 below64 = _mm512_mask_testn_epi8_mask(below1024, fine, _mm512_set1_epi8(0x3c));
    __m512i code = look_up_128(tables_.coarse.code.data(), coarse);
    __m512i last = look_up_128(tables_.coarse.last.data(), coarse);
    code =
        _mm512_mask_permutexvar_epi8(code, below4096, middle, load64(tables_.middle.code.data()));
    last =
        _mm512_mask_permutexvar_epi8(last, below4096, middle, load64(tables_.middle.last.data()));
    code = _mm512_mask_permutexvar_epi8(code, below1024, fine, load64(tables_.fine.code.data()));
    last = _mm512_mask_permutexvar_epi8(last, below1024, fine, load64(tables_.fine.last.data()));
    code = step_up(code, low, last);
    code = _mm512_mask_permutexvar_epi8(code, below64, low, load64(tables_.exact.data()));
    const __mmask64 positive = _mm512_movepi8_mask(coarse);
    code = _mm512_mask_subs_epu8(code, _knot_mask64(positive),
                                 _mm512_set1_epi8(static_cast<char>(254)), code);
    _mm512_storeu_si512(codes, code);
  }

 private:
  /// The low words of 32 dwords, in order.
  static HWY_INLINE __m512i low_words(__m512i a, __m512i b) {
    alignas(64) static constexpr std::array<std::uint16_t, 32> kEven = [] {
      std::array<std::uint16_t, 32> order{};
      for (std::size_t i = 0; i < 32; ++i) order[i] = static_cast<std::uint16_t>(2 * i);
      return order;
    }();
    return _mm512_permutex2var_epi16(a, _mm512_load_si512(kEven.data()), b);
  }

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

  HWY_INLINE void decode(const std::uint8_t* codes, VF out[4]) const {
    const __m512i code = transpose_dwords(load64(codes));
    const __mmask64 high = _mm512_movepi8_mask(code);
    interleave(look_up_256(tables_.decode[0].data(), code, high),
               look_up_256(tables_.decode[1].data(), code, high),
               look_up_256(tables_.decode[2].data(), code, high),
               look_up_256(tables_.decode[3].data(), code, high), out);
  }

  HWY_INLINE void encode(const VF x[4], VF inverse, std::uint8_t* codes) const {
    // For x >= 0 the number lies in [32768, 65536): its mantissa is j and eight bits of fraction.
    __m512i number[4];
    for (int i = 0; i < 4; ++i) number[i] = _mm512_castps_si512(index_number(x[i], inverse));
    const __m512i words0 = middle_words(number[0], number[1]);
    const __m512i words1 = middle_words(number[2], number[3]);
    __m512i low, coarse, middle, fine;
    fields<0, 7>(words0, words1, &low, &coarse);
    fields<5, 3>(words0, words1, &middle, &fine);
    const __mmask64 below4096 =
        _mm512_testn_epi8_mask(coarse, _mm512_set1_epi8(static_cast<char>(0xe0)));
    const __mmask64 below512 =
        _mm512_mask_testn_epi8_mask(below4096, middle, _mm512_set1_epi8(0x70));
    const __mmask64 below64 = _mm512_mask_testn_epi8_mask(below512, fine, _mm512_set1_epi8(0x38));
    const __mmask64 high = _mm512_movepi8_mask(coarse);
    __m512i code = look_up_256(tables_.coarse.code.data(), coarse, high);
    __m512i last = look_up_256(tables_.coarse.last.data(), coarse, high);
    code = _mm512_mask_blend_epi8(below4096, code, look_up_128(tables_.middle.code.data(), middle));
    last = _mm512_mask_blend_epi8(below4096, last, look_up_128(tables_.middle.last.data(), middle));
    code = _mm512_mask_permutexvar_epi8(code, below512, fine, load64(tables_.fine.code.data()));
    last = _mm512_mask_permutexvar_epi8(last, below512, fine, load64(tables_.fine.last.data()));
    code = step_up(code, low, last);
    code = _mm512_mask_permutexvar_epi8(code, below64, low, load64(tables_.exact.data()));
    _mm512_storeu_si512(codes, code);
  }

 private:
  /// Bits 8 to 23 of 32 dwords, in order.
  static HWY_INLINE __m512i middle_words(__m512i a, __m512i b) {
    alignas(64) static constexpr std::array<std::uint8_t, 64> kMiddle = [] {
      std::array<std::uint8_t, 64> order{};
      for (std::size_t i = 0; i < 64; ++i) {
        order[i] = static_cast<std::uint8_t>(4 * (i / 2) + 1 + i % 2);
      }
      return order;
    }();
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(kMiddle.data()), b);
  }

  const UnsignedByteTables& tables_;
};
