// Sixteen lanes as four NEON registers, with the dot-product instructions. The words are explained in simd.h.
#pragma once

#include <arm_neon.h>

#include "baton/base/simd/simd.h"

#ifdef BATON_SIMD
#error "one instruction set a file"
#endif
#define BATON_SIMD

namespace baton::simd {
namespace {

struct F {
  float32x4_t v[4];
};
struct I {
  int32x4_t v[4];
};
struct B {
  uint8x16_t v[4];
};
struct M {
  uint32x4_t v[4];
};
template <class Out, class Function>
BATON_INLINE Out each(Function f) {
  return {{f(0), f(1), f(2), f(3)}};
}

// ---- Floats ----

BATON_INLINE F all(float x) {
  return each<F>([&](int) BATON_LAMBDA { return vdupq_n_f32(x); });
}
BATON_INLINE F load(const float* from) {
  return each<F>([&](int i) BATON_LAMBDA { return vld1q_f32(from + 4 * i); });
}
BATON_INLINE F load(const float* from, int n) {
  if (n == kLanes) return load(from);
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = from[i];
  return load(lanes);
}
BATON_INLINE void store(float* to, const F& a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, a.v[i]);
}
BATON_INLINE void store(float* to, const F& a, int n) {
  if (n == kLanes) return store(to, a);
  float lanes[16];
  store(lanes, a);
  for (int i = 0; i < n; ++i) to[i] = lanes[i];
}
BATON_INLINE F operator+(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return vaddq_f32(a.v[i], b.v[i]); });
}
BATON_INLINE F operator-(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return vsubq_f32(a.v[i], b.v[i]); });
}
BATON_INLINE F operator*(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return vmulq_f32(a.v[i], b.v[i]); });
}
BATON_INLINE F operator/(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return vdivq_f32(a.v[i], b.v[i]); });
}
BATON_INLINE F fma(const F& a, const F& b, const F& c) {
  return each<F>([&](int i) BATON_LAMBDA { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
BATON_INLINE F min(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return vminnmq_f32(a.v[i], b.v[i]); });
}
BATON_INLINE F max(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return vmaxnmq_f32(a.v[i], b.v[i]); });
}
BATON_INLINE F abs(const F& a) {
  return each<F>([&](int i) BATON_LAMBDA { return vabsq_f32(a.v[i]); });
}
BATON_INLINE F sqrt(const F& a) {
  return each<F>([&](int i) BATON_LAMBDA { return vsqrtq_f32(a.v[i]); });
}
BATON_INLINE F round(const F& a) {
  return each<F>([&](int i) BATON_LAMBDA { return vrndnq_f32(a.v[i]); });
}
BATON_INLINE M operator<(const F& a, const F& b) {
  return each<M>([&](int i) BATON_LAMBDA { return vcltq_f32(a.v[i], b.v[i]); });
}
BATON_INLINE M operator!=(const F& a, const F& b) {
  return each<M>([&](int i) BATON_LAMBDA { return vmvnq_u32(vceqq_f32(a.v[i], b.v[i])); });
}
BATON_INLINE M operator&(const M& a, const M& b) {
  return each<M>([&](int i) BATON_LAMBDA { return vandq_u32(a.v[i], b.v[i]); });
}
BATON_INLINE bool any(const M& m) {
  return vmaxvq_u32(vorrq_u32(vorrq_u32(m.v[0], m.v[1]), vorrq_u32(m.v[2], m.v[3]))) != 0;
}
BATON_INLINE F select(const M& m, const F& yes, const F& no) {
  return each<F>([&](int i) BATON_LAMBDA { return vbslq_f32(m.v[i], yes.v[i], no.v[i]); });
}
BATON_INLINE float32x4_t fold(const F& a) { return vaddq_f32(vaddq_f32(a.v[0], a.v[1]), vaddq_f32(a.v[2], a.v[3])); }
BATON_INLINE float sum_of(const F& a) { return vaddvq_f32(fold(a)); }
BATON_INLINE float highest_of(const F& a) {
  return vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(a.v[0], a.v[1]), vmaxnmq_f32(a.v[2], a.v[3])));
}
BATON_INLINE void sum4(const F& a, const F& b, const F& c, const F& d, float* to) {
  vst1q_f32(to, vpaddq_f32(vpaddq_f32(fold(a), fold(b)), vpaddq_f32(fold(c), fold(d))));
}
BATON_INLINE F scale_by_power(const F& a, const F& n) {
  return each<F>([&](int i) BATON_LAMBDA {
    const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n.v[i]), vdupq_n_s32(127));
    return vmulq_f32(a.v[i], vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
  });
}

BATON_INLINE F load_f16(const void* from) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  const float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(bytes)), high = vreinterpretq_f16_u8(vld1q_u8(bytes + 16));
  return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
           vcvt_high_f32_f16(high)}};
}
BATON_INLINE F load_f16(const void* from, int n) {
  if (n == kLanes) return load_f16(from);
  uint16_t bits[16] = {};
  for (int i = 0; i < n; ++i) bits[i] = static_cast<const uint16_t*>(from)[i];
  return load_f16(bits);
}
BATON_INLINE void store_f16(uint16_t* to, const F& a) {
  const float16x8_t low = vcvt_high_f16_f32(vcvt_f16_f32(a.v[0]), a.v[1]);
  const float16x8_t high = vcvt_high_f16_f32(vcvt_f16_f32(a.v[2]), a.v[3]);
  vst1q_u16(to, vreinterpretq_u16_f16(low));
  vst1q_u16(to + 8, vreinterpretq_u16_f16(high));
}
BATON_INLINE void store_f16(uint16_t* to, const F& a, int n) {
  if (n == kLanes) return store_f16(to, a);
  uint16_t bits[16];
  store_f16(bits, a);
  for (int i = 0; i < n; ++i) to[i] = bits[i];
}
BATON_INLINE F load_bf16(const void* from) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  const uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(bytes)), high = vreinterpretq_u16_u8(vld1q_u8(bytes + 16));
  return {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)),
           vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(low), 16)),
           vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(high), 16)),
           vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(high), 16))}};
}
BATON_INLINE F load_bf16(const void* from, int n) {
  if (n == kLanes) return load_bf16(from);
  uint16_t bits[16] = {};
  __builtin_memcpy(bits, from, static_cast<size_t>(n) * 2);
  return load_bf16(bits);
}
BATON_INLINE F all_f16(const void* from) {
  uint16_t bits;
  __builtin_memcpy(&bits, from, 2);
  const float32x4_t value = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits)));
  return {{value, value, value, value}};
}
BATON_INLINE void load_bf16_pairs(const unsigned char* from, F& even, F& odd) {
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t pairs = vreinterpretq_u32_u8(vld1q_u8(from + 16 * i));
    even.v[i] = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    odd.v[i] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
  }
}
inline void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
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

// ---- Integers ----

BATON_INLINE I all(int32_t x) {
  return each<I>([&](int) BATON_LAMBDA { return vdupq_n_s32(x); });
}
BATON_INLINE I load_u8(const void* from) {
  const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t*>(from));
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_high_u16(low)),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_high_u16(high))}};
}
BATON_INLINE I load_i8(const void* from) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(static_cast<const uint8_t*>(from)));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}};
}
BATON_INLINE I operator+(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return vaddq_s32(a.v[i], b.v[i]); });
}
BATON_INLINE I operator-(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return vsubq_s32(a.v[i], b.v[i]); });
}
BATON_INLINE I operator&(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return vandq_s32(a.v[i], b.v[i]); });
}
BATON_INLINE I operator<<(const I& a, int n) {
  return each<I>([&](int i) BATON_LAMBDA { return vshlq_s32(a.v[i], vdupq_n_s32(n)); });
}
BATON_INLINE I operator>>(const I& a, int n) {
  return each<I>([&](int i) BATON_LAMBDA { return vshlq_s32(a.v[i], vdupq_n_s32(-n)); });
}
BATON_INLINE I min(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return vminq_s32(a.v[i], b.v[i]); });
}
BATON_INLINE I max(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return vmaxq_s32(a.v[i], b.v[i]); });
}
BATON_INLINE F to_float(const I& a) {
  return each<F>([&](int i) BATON_LAMBDA { return vcvtq_f32_s32(a.v[i]); });
}
BATON_INLINE I to_int(const F& a) {
  return each<I>([&](int i) BATON_LAMBDA { return vcvtnq_s32_f32(a.v[i]); });
}
BATON_INLINE F float_of(const I& a) {
  return each<F>([&](int i) BATON_LAMBDA { return vreinterpretq_f32_s32(a.v[i]); });
}
BATON_INLINE I bits_of(const F& a) {
  return each<I>([&](int i) BATON_LAMBDA { return vreinterpretq_s32_f32(a.v[i]); });
}
BATON_INLINE int32_t sum_of(const I& a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}
BATON_INLINE void store_narrow(int8_t* to, const I& a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  vst1q_s8(to, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

// ---- Bytes ----

BATON_INLINE B load_bytes(const unsigned char* from) {
  return each<B>([&](int i) BATON_LAMBDA { return vld1q_u8(from + 16 * i); });
}
BATON_INLINE void store_bytes(unsigned char* to, const B& a) {
  for (int i = 0; i < 4; ++i) vst1q_u8(to + 16 * i, a.v[i]);
}
template <int Shift>
BATON_INLINE uint8x16_t field(uint8x16_t b, int mask) {
  if constexpr (Shift > 0) {
    b = vshrq_n_u8(b, Shift);
    if (mask == 255 >> Shift) return b;
  }
  if constexpr (Shift < 0) b = vshlq_n_u8(b, -Shift);
  return vandq_u8(b, vdupq_n_u8(static_cast<uint8_t>(mask)));
}
template <int Shift>
BATON_INLINE B field(const B& b, int mask) {
  return each<B>([&](int i) BATON_LAMBDA { return field<Shift>(b.v[i], mask); });
}
template <int Shift>
BATON_INLINE B field_into(const B& low, const B& b, int mask) {
  return each<B>([&](int i) BATON_LAMBDA { return vorrq_u8(low.v[i], field<Shift>(b.v[i], mask)); });
}
BATON_INLINE B look_up(const B& codes, const unsigned char* table) {
  const uint8x16_t values = vld1q_u8(table);
  return each<B>([&](int i) BATON_LAMBDA { return vqtbl1q_u8(values, codes.v[i]); });
}
BATON_INLINE B add_bytes(const B& a, int x) {
  return each<B>([&](int i) BATON_LAMBDA { return vaddq_u8(a.v[i], vdupq_n_u8(static_cast<uint8_t>(x))); });
}
constexpr bool kDotKeepsBias = false;
BATON_INLINE int8x16_t four(const int8_t* a) {
  int32_t bytes;
  __builtin_memcpy(&bytes, a, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(bytes));
}
// Below 64: the same as signed bytes.
BATON_INLINE I dot(const I& sum, const B& w, const int8_t* a) {
  const int8x16_t x = four(a);
  return each<I>([&](int i) BATON_LAMBDA { return vdotq_s32(sum.v[i], vreinterpretq_s8_u8(w.v[i]), x); });
}
BATON_INLINE int8x16_t centred(uint8x16_t w) { return vreinterpretq_s8_u8(veorq_u8(w, vdupq_n_u8(0x80))); }
BATON_INLINE I dot_biased(const I& sum, const B& w, const int8_t* a) {
  const int8x16_t x = four(a);
  return each<I>([&](int i) BATON_LAMBDA { return vdotq_s32(sum.v[i], centred(w.v[i]), x); });
}

}  // namespace
}  // namespace baton::simd
