// The set without instruction-set intrinsics: sixteen lanes as an array, for any processor.
#include <cstring>

#include "baton/base/float.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {
namespace {

#include "baton/unit/host/kernels_loops.inl.h"

struct Lanes {
  struct F {
    float v[16];
  };
  struct I {
    int32_t v[16];
  };
  struct B {
    uint8_t v[64];
  };
  static constexpr int kIntegerPanels = 1, kIntegerTokens = 1, kFloatPanels = 1, kFloatTokens = 2;
  static constexpr int kDirectTokens = 4;  // up to here weights are unpacked in registers, once for all tokens

  template <class Function>
  static BATON_INLINE F each(Function f) {
    F out;
    for (int i = 0; i < 16; ++i) out.v[i] = f(i);
    return out;
  }

  static BATON_INLINE F zero() { return set1(0); }
  static BATON_INLINE F set1(float x) {
    return each([&](int) BATON_LAMBDA { return x; });
  }
  static BATON_INLINE F load(const float* from) {
    F out;
    std::memcpy(&out, from, sizeof(out));
    return out;
  }
  static BATON_INLINE F load_n(const float* from, int n) {
    F out{};
    for (int i = 0; i < n; ++i) out.v[i] = from[i];
    return out;
  }
  static BATON_INLINE void store(float* to, const F& a) { std::memcpy(to, &a, sizeof(a)); }
  static BATON_INLINE void store_n(float* to, const F& a, int n) {
    for (int i = 0; i < n; ++i) to[i] = a.v[i];
  }
  static BATON_INLINE F add(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return a.v[i] + b.v[i]; });
  }
  static BATON_INLINE F sub(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return a.v[i] - b.v[i]; });
  }
  static BATON_INLINE F mul(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return a.v[i] * b.v[i]; });
  }
  static BATON_INLINE F div(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return a.v[i] / b.v[i]; });
  }
  static BATON_INLINE F fma(const F& a, const F& b, const F& c) {
    return each([&](int i) BATON_LAMBDA { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static BATON_INLINE F min(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static BATON_INLINE F max(const F& a, const F& b) {
    return each([&](int i) BATON_LAMBDA { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static BATON_INLINE F abs(const F& a) {
    return each([&](int i) BATON_LAMBDA { return __builtin_fabsf(a.v[i]); });
  }
  // Adding 1.5 * 2^23 leaves no fraction bits: nearest, ties to even, for |a| < 2^22.
  static BATON_INLINE F round(const F& a) {
    return each([&](int i) BATON_LAMBDA { return a.v[i] + 12582912.0f - 12582912.0f; });
  }
  static BATON_INLINE float sum(const F& a) {
    float out = 0;
    for (int i = 0; i < 16; ++i) out += a.v[i];
    return out;
  }
  static BATON_INLINE float highest(const F& a) {
    float out = a.v[0];
    for (int i = 1; i < 16; ++i) out = a.v[i] > out ? a.v[i] : out;
    return out;
  }
  static BATON_INLINE void sum4(const F& a, const F& b, const F& c, const F& d, float* to) {
    to[0] = sum(a);
    to[1] = sum(b);
    to[2] = sum(c);
    to[3] = sum(d);
  }
  static BATON_INLINE F scale_by_power(const F& a, const F& n) {
    return each([&](int i)
                    BATON_LAMBDA { return a.v[i] * std::bit_cast<float>((static_cast<int32_t>(n.v[i]) + 127) << 23); });
  }
  static BATON_INLINE F exp_limits(const F& y, const F& x) {
    return each([&](int i) BATON_LAMBDA {
      if (x.v[i] != x.v[i]) return x.v[i];
      return x.v[i] < -87.3f ? 0.0f : (x.v[i] > 88.37f ? __builtin_inff() : y.v[i]);
    });
  }
  static BATON_INLINE F load_f16(const void* from) {
    uint16_t bits[16];
    std::memcpy(bits, from, sizeof(bits));
    return each([&](int i) BATON_LAMBDA { return f16_to_f32(bits[i]); });
  }
  static BATON_INLINE F load_f16_n(const uint16_t* from, int n) {
    F out{};
    for (int i = 0; i < n; ++i) out.v[i] = f16_to_f32(from[i]);
    return out;
  }
  static BATON_INLINE void store_f16(uint16_t* to, const F& a) { store_f16_n(to, a, 16); }
  static BATON_INLINE void store_f16_n(uint16_t* to, const F& a, int n) {
    for (int i = 0; i < n; ++i) to[i] = f32_to_f16(a.v[i]);
  }
  static BATON_INLINE void load_bf16_pairs(const void* from, F& even, F& odd) {
    uint16_t bits[32];
    std::memcpy(bits, from, sizeof(bits));
    even = each([&](int i) BATON_LAMBDA { return bf16_to_f32(bits[2 * i]); });
    odd = each([&](int i) BATON_LAMBDA { return bf16_to_f32(bits[2 * i + 1]); });
  }
  static BATON_INLINE F load_u8(const unsigned char* from) {
    return each([&](int i) BATON_LAMBDA { return static_cast<float>(from[i]); });
  }
  static BATON_INLINE F load_i8(const unsigned char* from) {
    return each([&](int i) BATON_LAMBDA { return static_cast<float>(static_cast<int8_t>(from[i])); });
  }
  static BATON_INLINE F load_low_nibbles(const unsigned char* from) {
    return each([&](int i) BATON_LAMBDA { return static_cast<float>(from[i] & 15); });
  }
  static BATON_INLINE F load_high_nibbles(const unsigned char* from) {
    return each([&](int i) BATON_LAMBDA { return static_cast<float>(from[i] >> 4); });
  }
  // 2^(e - 128); the first two are denormal.
  static BATON_INLINE F load_half_powers(const unsigned char* from) {
    return each([&](int i) BATON_LAMBDA {
      const uint32_t e = from[i], bits = e < 2 ? (e + 1) << 21 : (e - 1) << 23;
      float power;
      std::memcpy(&power, &bits, sizeof(power));
      return power;
    });
  }
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) to[j * to_stride + i] = from[i * from_stride + j];
    }
  }

  template <class Function>
  static BATON_INLINE B each_byte(Function f) {
    B out;
    for (int i = 0; i < 64; ++i) out.v[i] = static_cast<uint8_t>(f(i));
    return out;
  }
  static BATON_INLINE B load_bytes(const unsigned char* from) {
    B out;
    std::memcpy(&out, from, sizeof(out));
    return out;
  }
  static BATON_INLINE void store_bytes(unsigned char* to, const B& a) { std::memcpy(to, &a, sizeof(a)); }
  static BATON_INLINE B low_nibbles(const B& a) {
    return each_byte([&](int i) BATON_LAMBDA { return a.v[i] & 15; });
  }
  static BATON_INLINE B high_nibbles(const B& a) {
    return each_byte([&](int i) BATON_LAMBDA { return a.v[i] >> 4; });
  }
  template <int Bit>
  static BATON_INLINE B with_bit4(const B& low, const B& high) {
    return each_byte([&](int i) BATON_LAMBDA { return low.v[i] | (high.v[i] >> Bit & 1) << 4; });
  }
  template <int Pair>
  static BATON_INLINE B with_bits45(const B& low, const B& high) {
    return each_byte([&](int i) BATON_LAMBDA { return low.v[i] | (high.v[i] >> 2 * Pair & 3) << 4; });
  }
  template <int Pair>
  static BATON_INLINE B bit_pairs(const B& a) {
    return each_byte([&](int i) BATON_LAMBDA { return a.v[i] >> 2 * Pair & 3; });
  }
  template <int Bit>
  static BATON_INLINE B with_bit2(const B& low, const B& high) {
    return each_byte([&](int i) BATON_LAMBDA { return low.v[i] | (high.v[i] >> Bit & 1) << 2; });
  }
  static BATON_INLINE B look_up(const B& codes, const unsigned char* table) {
    return each_byte([&](int i) BATON_LAMBDA { return table[codes.v[i]]; });
  }
  static BATON_INLINE B add_bytes(const B& a, int x) {
    return each_byte([&](int i) BATON_LAMBDA { return a.v[i] + x; });
  }
  static BATON_INLINE I zero_int() { return I{}; }
  static BATON_INLINE I start_biased(const int32_t*) { return I{}; }
  static BATON_INLINE I dot_plain(const I& sum, const B& w, const int8_t* a) {
    I out;
    for (int i = 0; i < 16; ++i) {
      out.v[i] = sum.v[i] + w.v[4 * i] * a[0] + w.v[4 * i + 1] * a[1] + w.v[4 * i + 2] * a[2] + w.v[4 * i + 3] * a[3];
    }
    return out;
  }
  static BATON_INLINE I dot_biased(const I& sum, const B& w, const int8_t* a) {
    I out;
    for (int i = 0; i < 16; ++i) {
      out.v[i] = sum.v[i] + (w.v[4 * i] - 128) * a[0] + (w.v[4 * i + 1] - 128) * a[1] + (w.v[4 * i + 2] - 128) * a[2] +
                 (w.v[4 * i + 3] - 128) * a[3];
    }
    return out;
  }
  static BATON_INLINE F to_float(const I& a) {
    return each([&](int i) BATON_LAMBDA { return static_cast<float>(a.v[i]); });
  }
  static BATON_INLINE I times_128(const I& a) {
    I out;
    for (int i = 0; i < 16; ++i) out.v[i] = a.v[i] * 128;
    return out;
  }
  static BATON_INLINE I to_int(const F& a) {
    const F rounded = round(a);
    I out;
    for (int i = 0; i < 16; ++i) out.v[i] = static_cast<int32_t>(rounded.v[i]);
    return out;
  }
  static BATON_INLINE I divide_128(const I& a) {
    I out;
    for (int i = 0; i < 16; ++i) out.v[i] = (a.v[i] + 64) >> 7;
    return out;
  }
  static BATON_INLINE I sub_int(const I& a, const I& b) {
    I out;
    for (int i = 0; i < 16; ++i) out.v[i] = a.v[i] - b.v[i];
    return out;
  }
  static BATON_INLINE int32_t sum_int(const I& a) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += a.v[i];
    return sum;
  }
  static BATON_INLINE void store_narrow(int8_t* to, const I& a) {
    for (int i = 0; i < 16; ++i) to[i] = static_cast<int8_t>(a.v[i]);
  }
};

#include "baton/unit/host/kernels_table.inl.h"

}  // namespace

extern const Kernels k_kernels_scalar;
constinit const Kernels k_kernels_scalar = make_kernels("scalar", "scalar");

}  // namespace baton::host
