// Purpose: eight entries of a table of float32 by eight indices. Included by the codecs of
// kernels/simd_blocks.cc, once a target.
//
// Usage:  const __m256 entries = look_up_8(table, index);
//
// Caveats: no gather instruction is used: it takes half as long again on Zen 3 and Zen 5.

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
