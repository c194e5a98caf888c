// Sixteen lanes as four NEON registers. Needs the dot-product instructions; this file alone is compiled for them.
#include "baton/unit/host/kernels.h"

#if defined(__aarch64__)

#include <arm_neon.h>

namespace baton::host {
namespace {

#include "baton/unit/host/kernels_loops.inl.h"

struct Lanes {
  struct F {
    float32x4_t v[4];
  };
  struct I {
    int32x4_t v[4];
  };
  struct B {
    uint8x16_t v[4];
  };
  // 12 + 12 accumulators for integers, 24 for floats, of 32 registers.
  static constexpr int kIntegerPanels = 1, kIntegerTokens = 3, kFloatPanels = 1, kFloatTokens = 6;
  static constexpr int kDirectTokens = 4;  // up to here weights are unpacked in registers, once for all tokens

  template <class Function>
  static BATON_INLINE F each(Function f) {
    return {{f(0), f(1), f(2), f(3)}};
  }
  template <class Function>
  static BATON_INLINE I each_int(Function f) {
    return {{f(0), f(1), f(2), f(3)}};
  }
  template <class Function>
  static BATON_INLINE B each_bytes(Function f) {
    return {{f(0), f(1), f(2), f(3)}};
  }

  static BATON_INLINE F zero() { return set1(0); }
  static BATON_INLINE F set1(float x) {
    return each([&](int) BATON_LAMBDA { return vdupq_n_f32(x); });
  }
  static BATON_INLINE F load(const float* from) {
    return each([&](int i) BATON_LAMBDA { return vld1q_f32(from + 4 * i); });
  }
  static BATON_INLINE F load_n(const float* from, int n) {
    float all[16] = {};
    for (int i = 0; i < n; ++i) all[i] = from[i];
    return load(all);
  }
  static BATON_INLINE void store(float* to, const F& a) {
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, a.v[i]);
  }
  static BATON_INLINE void store_n(float* to, const F& a, int n) {
    float all[16];
    store(all, a);
    for (int i = 0; i < n; ++i) to[i] = all[i];
  }
  static BATON_INLINE F add(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static BATON_INLINE F sub(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static BATON_INLINE F mul(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static BATON_INLINE F div(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static BATON_INLINE F fma(const F& a, const F& b, const F& c) {
    return each([&](int i) BATON_LAMBDA { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  static BATON_INLINE F min(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return vminnmq_f32(a.v[i], b.v[i]); });
  }
  static BATON_INLINE F max(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return vmaxnmq_f32(a.v[i], b.v[i]); });
  }
  static BATON_INLINE F abs(const F& a) {
    return each([&](int i) BATON_LAMBDA { return vabsq_f32(a.v[i]); });
  }
  static BATON_INLINE F round(const F& a) {
    return each([&](int i) BATON_LAMBDA { return vrndnq_f32(a.v[i]); });
  }
  static BATON_INLINE float32x4_t fold(const F& a) {
    return vaddq_f32(vaddq_f32(a.v[0], a.v[1]), vaddq_f32(a.v[2], a.v[3]));
  }
  static BATON_INLINE float sum(const F& a) { return vaddvq_f32(fold(a)); }
  static BATON_INLINE float highest(const F& a) {
    return vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(a.v[0], a.v[1]), vmaxnmq_f32(a.v[2], a.v[3])));
  }
  static BATON_INLINE void sum4(const F& a, const F& b, const F& c, const F& d, float* to) {
    vst1q_f32(to, vpaddq_f32(vpaddq_f32(fold(a), fold(b)), vpaddq_f32(fold(c), fold(d))));
  }
  static BATON_INLINE F scale_by_power(const F& a, const F& n) {
    return each([&](int i) BATON_LAMBDA {
      const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n.v[i]), vdupq_n_s32(127));
      return vmulq_f32(a.v[i], vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
    });
  }
  static BATON_INLINE F exp_limits(const F& y, const F& x) {
    return each([&](int i) BATON_LAMBDA {
      float32x4_t out = vbslq_f32(vcltq_f32(x.v[i], vdupq_n_f32(-87.3f)), vdupq_n_f32(0), y.v[i]);
      out = vbslq_f32(vcgtq_f32(x.v[i], vdupq_n_f32(88.37f)), vdupq_n_f32(__builtin_inff()), out);
      return vbslq_f32(vceqq_f32(x.v[i], x.v[i]), out, x.v[i]);
    });
  }
  static BATON_INLINE F load_f16(const void* from) {
    const auto* bytes = static_cast<const uint8_t*>(from);
    const float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(bytes)), high = vreinterpretq_f16_u8(vld1q_u8(bytes + 16));
    return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
             vcvt_high_f32_f16(high)}};
  }
  static BATON_INLINE F load_f16_n(const uint16_t* from, int n) {
    uint16_t bits[16] = {};
    for (int i = 0; i < n; ++i) bits[i] = from[i];
    return load_f16(bits);
  }
  static BATON_INLINE void store_f16(uint16_t* to, const F& a) {
    const float16x8_t low = vcvt_high_f16_f32(vcvt_f16_f32(a.v[0]), a.v[1]);
    const float16x8_t high = vcvt_high_f16_f32(vcvt_f16_f32(a.v[2]), a.v[3]);
    vst1q_u16(to, vreinterpretq_u16_f16(low));
    vst1q_u16(to + 8, vreinterpretq_u16_f16(high));
  }
  static BATON_INLINE void store_f16_n(uint16_t* to, const F& a, int n) {
    uint16_t bits[16];
    store_f16(bits, a);
    for (int i = 0; i < n; ++i) to[i] = bits[i];
  }
  static BATON_INLINE void load_bf16_pairs(const void* from, F& even, F& odd) {
    const B pairs = load_bytes(static_cast<const unsigned char*>(from));
    even = each([&](int i)
                    BATON_LAMBDA { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u8(pairs.v[i]), 16)); });
    odd = each([&](int i) BATON_LAMBDA {
      return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(pairs.v[i]), vdupq_n_u32(0xffff0000u)));
    });
  }
  static BATON_INLINE F floats_of(uint8x16_t bytes) {
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
  }
  static BATON_INLINE F load_u8(const unsigned char* from) { return floats_of(vld1q_u8(from)); }
  static BATON_INLINE F load_i8(const unsigned char* from) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(from));
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
  }
  static BATON_INLINE F load_low_nibbles(const unsigned char* from) {
    return floats_of(vandq_u8(vld1q_u8(from), vdupq_n_u8(15)));
  }
  static BATON_INLINE F load_high_nibbles(const unsigned char* from) {
    return floats_of(vshrq_n_u8(vld1q_u8(from), 4));
  }
  // 2^(e - 128); the first two are denormal: 1 << 21 and 2 << 21.
  static BATON_INLINE float32x4_t half_power(uint16x4_t exponents) {
    const int32x4_t e = vreinterpretq_s32_u32(vmovl_u16(exponents)), one = vdupq_n_s32(1);
    const int32x4_t denormal = vshlq_n_s32(vaddq_s32(vminq_s32(e, one), one), 21);
    return vreinterpretq_f32_s32(vmaxq_s32(vshlq_n_s32(vsubq_s32(e, one), 23), denormal));
  }
  static BATON_INLINE F load_half_powers(const unsigned char* from) {
    const uint8x16_t bytes = vld1q_u8(from);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    return {{half_power(vget_low_u16(low)), half_power(vget_high_u16(low)), half_power(vget_low_u16(high)),
             half_power(vget_high_u16(high))}};
  }
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    for (int i = 0; i < 16; i += 4) {
      for (int j = 0; j < 16; j += 4) {
        const float* at = from + i * from_stride + j;
        const float32x4x2_t ab = vtrnq_f32(vld1q_f32(at), vld1q_f32(at + from_stride));
        const float32x4x2_t cd = vtrnq_f32(vld1q_f32(at + 2 * from_stride), vld1q_f32(at + 3 * from_stride));
        float* out = to + j * to_stride + i;
        vst1q_f32(out, vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0])));
        vst1q_f32(out + to_stride, vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1])));
        vst1q_f32(out + 2 * to_stride, vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0])));
        vst1q_f32(out + 3 * to_stride, vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1])));
      }
    }
  }

  static BATON_INLINE B load_bytes(const unsigned char* from) {
    return each_bytes([&](int i) BATON_LAMBDA { return vld1q_u8(from + 16 * i); });
  }
  static BATON_INLINE void store_bytes(unsigned char* to, const B& a) {
    for (int i = 0; i < 4; ++i) vst1q_u8(to + 16 * i, a.v[i]);
  }
  static BATON_INLINE B low_nibbles(const B& a) {
    return each_bytes([&](int i) BATON_LAMBDA { return vandq_u8(a.v[i], vdupq_n_u8(15)); });
  }
  static BATON_INLINE B high_nibbles(const B& a) {
    return each_bytes([&](int i) BATON_LAMBDA { return vshrq_n_u8(a.v[i], 4); });
  }
  // low | (high shifted left by Left, or right when negative) & mask
  template <int Left>
  static BATON_INLINE B merge(const B& low, const B& high, uint8_t mask) {
    return each_bytes([&](int i) BATON_LAMBDA {
      const uint8x16_t moved = vshlq_u8(high.v[i], vdupq_n_s8(Left));
      return vorrq_u8(low.v[i], vandq_u8(moved, vdupq_n_u8(mask)));
    });
  }
  template <int Bit>
  static BATON_INLINE B with_bit4(const B& low, const B& high) {
    return merge<4 - Bit>(low, high, 16);
  }
  template <int Pair>
  static BATON_INLINE B with_bits45(const B& low, const B& high) {
    return merge<4 - 2 * Pair>(low, high, 48);
  }
  template <int Pair>
  static BATON_INLINE B bit_pairs(const B& a) {
    return each_bytes([&](int i)
                          BATON_LAMBDA { return vandq_u8(vshlq_u8(a.v[i], vdupq_n_s8(-2 * Pair)), vdupq_n_u8(3)); });
  }
  template <int Bit>
  static BATON_INLINE B with_bit2(const B& low, const B& high) {
    return merge<2 - Bit>(low, high, 4);
  }
  static BATON_INLINE B look_up(const B& codes, const unsigned char* table) {
    const uint8x16_t all = vld1q_u8(table);
    return each_bytes([&](int i) BATON_LAMBDA { return vqtbl1q_u8(all, codes.v[i]); });
  }
  static BATON_INLINE B add_bytes(const B& a, int x) {
    return each_bytes([&](int i) BATON_LAMBDA { return vaddq_u8(a.v[i], vdupq_n_u8(static_cast<uint8_t>(x))); });
  }
  static BATON_INLINE I zero_int() {
    return each_int([&](int) BATON_LAMBDA { return vdupq_n_s32(0); });
  }
  static BATON_INLINE I start_biased(const int32_t*) { return zero_int(); }
  static BATON_INLINE int8x16_t four(const int8_t* a) {
    int32_t bytes;
    __builtin_memcpy(&bytes, a, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(bytes));
  }
  // Plain values stay below 64: they are the same as signed bytes.
  static BATON_INLINE I dot_plain(const I& sum, const B& w, const int8_t* a) {
    const int8x16_t x = four(a);
    return each_int([&](int i) BATON_LAMBDA { return vdotq_s32(sum.v[i], vreinterpretq_s8_u8(w.v[i]), x); });
  }
  static BATON_INLINE I dot_biased(const I& sum, const B& w, const int8_t* a) {
    const int8x16_t x = four(a);
    return each_int([&](int i) BATON_LAMBDA {
      return vdotq_s32(sum.v[i], vreinterpretq_s8_u8(veorq_u8(w.v[i], vdupq_n_u8(0x80))), x);
    });
  }
  static BATON_INLINE F to_float(const I& a) {
    return each([&](int i) BATON_LAMBDA { return vcvtq_f32_s32(a.v[i]); });
  }
  static BATON_INLINE I times_128(const I& a) {
    return each_int([&](int i) BATON_LAMBDA { return vshlq_n_s32(a.v[i], 7); });
  }
  static BATON_INLINE void store_narrow(int8_t* to, const I& a) {
    const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
    vst1q_s8(to, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
  static BATON_INLINE I to_int(const F& a) {
    return each_int([&](int i) BATON_LAMBDA { return vcvtnq_s32_f32(a.v[i]); });
  }
  static BATON_INLINE I divide_128(const I& a) {
    return each_int([&](int i) BATON_LAMBDA { return vrshrq_n_s32(a.v[i], 7); });
  }
  static BATON_INLINE I sub_int(const I& a, const I& b) {
    return each_int([&](int i) BATON_LAMBDA { return vsubq_s32(a.v[i], b.v[i]); });
  }
  static BATON_INLINE int32_t sum_int(const I& a) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
  }
};

#include "baton/unit/host/kernels_table.inl.h"

}  // namespace

const Kernels& kernels_neon();
const Kernels& kernels_neon() {
  static constexpr Kernels kKernels = make_kernels("neon", "neon-dotprod");
  return kKernels;
}

}  // namespace baton::host

#endif
