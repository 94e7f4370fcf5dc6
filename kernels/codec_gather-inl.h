// Purpose: decoding and encoding of 8-bit states, a group at a time, with gathers. Included by
// kernels/simd_blocks.cc, once a target.
//
// Usage:
//     const SignedCodec codec;
//     VF x[kVectors]; codec.decode(codes, x);  // values in [-1, 1], not yet times absmax
//     codec.encode(x, inverse, codes);         // x times inverse, the reciprocal of the absmax
//
// Caveats: encode() needs finite x, for UnsignedCodec none of them with a sign bit, and a finite
// inverse with |x * inverse| <= 1 up to rounding. The kernels leave all other blocks to the scalar
// code.

constexpr std::int64_t kGroup = 64;  // elements taken at once
constexpr std::int64_t kVectors = kGroup / kLanes;

template <CodeTable table>
class GatherCodec {
 public:
  GatherCodec()
      : values_(table == CodeTable::signed_codes ? kSignedCodeBits.data()
                                                 : kUnsignedCodeBits.data()),
        entries_(encode_bins(table).entries.data()) {}

  HWY_INLINE void decode(const std::uint8_t* codes, VF out[kVectors]) const {
    for (std::int64_t i = 0; i < kVectors; ++i) {
      const VU index = hn::PromoteTo(U(), hn::LoadU(U8(), codes + i * kLanes));
      out[i] = hn::BitCast(F(), hn::GatherIndex(U(), values_, hn::BitCast(I(), index)));
    }
  }

  HWY_INLINE void encode(const VF x[kVectors], VF inverse, std::uint8_t* codes) const {
    constexpr int kShift = table == CodeTable::signed_codes ? 17 : 16;
    const VF one = hn::Set(F(), 1.0f);
    for (std::int64_t i = 0; i < kVectors; ++i) {
      const VF u = hn::Add(hn::Mul(x[i], inverse), one);
      const VU bits = hn::BitCast(U(), hn::Sub(u, one));
      const auto index = hn::BitCast(I(), hn::ShiftRight<kShift>(bits));
      const VU entry = hn::GatherIndex(U(), entries_, index);
      const VU low = hn::And(bits, hn::Set(U(), (1u << kShift) - 1));
      const VU sign = hn::BitCast(U(), hn::BroadcastSignBit(hn::BitCast(I(), bits)));
      const VU code = hn::Xor(hn::ShiftRight<kShift>(hn::Add(entry, low)), sign);
      hn::StoreU(hn::U8FromU32(hn::And(code, hn::Set(U(), 255))), U8(), codes + i * kLanes);
    }
  }

 private:
  const std::uint32_t* values_;
  const std::uint32_t* entries_;
};

using SignedCodec = GatherCodec<CodeTable::signed_codes>;
using UnsignedCodec = GatherCodec<CodeTable::unsigned_codes>;
