// Sixteen lanes as four vectors of the compiler's, for any processor. The words are explained in simd.h.
#pragma once

#include "baton/base/float.h"
#include "baton/base/simd/simd.h"

#ifdef BATON_SIMD
#error "one instruction set a file"
#endif
#define BATON_SIMD

namespace baton::simd {
namespace {

// What every compiler for every processor knows: vectors of four, and of sixteen bytes. In arrays of sixteen single
// values the same code took ten times as long to compile.
template <class T, int Bytes>
struct VectorOf {
  using Type __attribute__((vector_size(Bytes))) = T;
};
using F4 = VectorOf<float, 16>::Type;
using I4 = VectorOf<int32_t, 16>::Type;
using U4 = VectorOf<uint32_t, 16>::Type;
using B16 = VectorOf<uint8_t, 16>::Type;

struct F {
  F4 v[4];
};
struct I {
  I4 v[4];
};
struct B {
  B16 v[4];
};
struct M {
  I4 v[4];
};
template <class Out, class Function>
BATON_INLINE Out each(Function f) {
  return {{f(0), f(1), f(2), f(3)}};
}
template <class To, class From>
BATON_INLINE To as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
template <class V>
BATON_INLINE V load_vector(const void* from, int quarter) {
  V out;
  __builtin_memcpy(&out, static_cast<const unsigned char*>(from) + sizeof(V) * static_cast<size_t>(quarter), sizeof(V));
  return out;
}
template <class V>
BATON_INLINE V select(I4 mask, V yes, V no) {
  return as<V>((as<I4>(yes) & mask) | (as<I4>(no) & ~mask));
}

// ---- Floats ----

BATON_INLINE F all(float x) {
  const F4 four = {x, x, x, x};
  return {{four, four, four, four}};
}
BATON_INLINE F load(const float* from) {
  return each<F>([&](int i) BATON_LAMBDA { return load_vector<F4>(from, i); });
}
inline BATON_NOINLINE F load_some(const float* from, int n) {
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = from[i];
  return load(lanes);
}
BATON_INLINE F load(const float* from, int n) { return n == kLanes ? load(from) : load_some(from, n); }
BATON_INLINE void store(float* to, const F& a) { __builtin_memcpy(to, &a, sizeof(a)); }
inline BATON_NOINLINE void store_some(float* to, const F& a, int n) {
  float lanes[16];
  store(lanes, a);
  for (int i = 0; i < n; ++i) to[i] = lanes[i];
}
BATON_INLINE void store(float* to, const F& a, int n) { n == kLanes ? store(to, a) : store_some(to, a, n); }
BATON_INLINE F operator+(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return a.v[i] + b.v[i]; });
}
BATON_INLINE F operator-(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return a.v[i] - b.v[i]; });
}
BATON_INLINE F operator*(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return a.v[i] * b.v[i]; });
}
BATON_INLINE F operator/(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return a.v[i] / b.v[i]; });
}
BATON_INLINE F fma(const F& a, const F& b, const F& c) {
  return each<F>([&](int i) BATON_LAMBDA { return a.v[i] * b.v[i] + c.v[i]; });
}
BATON_INLINE F min(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return select(a.v[i] < b.v[i], a.v[i], b.v[i]); });
}
BATON_INLINE F max(const F& a, const F& b) {
  return each<F>([&](int i) BATON_LAMBDA { return select(a.v[i] > b.v[i], a.v[i], b.v[i]); });
}
BATON_INLINE F abs(const F& a) {
  return each<F>([&](int i) BATON_LAMBDA { return as<F4>(as<I4>(a.v[i]) & 0x7fffffff); });
}
BATON_INLINE F sqrt(const F& a) {
  return each<F>([&](int i) BATON_LAMBDA {
    const F4 x = a.v[i];
    return F4{__builtin_sqrtf(x[0]), __builtin_sqrtf(x[1]), __builtin_sqrtf(x[2]), __builtin_sqrtf(x[3])};
  });
}
// Adding 1.5 * 2^23 leaves no fraction bits: nearest, ties to even.
BATON_INLINE F4 nearest(F4 a) { return a + 12582912.0f - 12582912.0f; }
BATON_INLINE F round(const F& a) {
  return each<F>([&](int i) BATON_LAMBDA { return nearest(a.v[i]); });
}
BATON_INLINE M operator<(const F& a, const F& b) {
  return each<M>([&](int i) BATON_LAMBDA { return a.v[i] < b.v[i]; });
}
BATON_INLINE M operator!=(const F& a, const F& b) {
  return each<M>([&](int i) BATON_LAMBDA { return a.v[i] != b.v[i]; });
}
BATON_INLINE M operator&(const M& a, const M& b) {
  return each<M>([&](int i) BATON_LAMBDA { return a.v[i] & b.v[i]; });
}
BATON_INLINE bool any(const M& m) {
  const I4 found = m.v[0] | m.v[1] | m.v[2] | m.v[3];
  return (found[0] | found[1] | found[2] | found[3]) != 0;
}
BATON_INLINE F select(const M& m, const F& yes, const F& no) {
  return each<F>([&](int i) BATON_LAMBDA { return select(m.v[i], yes.v[i], no.v[i]); });
}
inline BATON_NOINLINE float sum_of(const F& a) {
  float out = 0;
  for (int i = 0; i < 16; ++i) out += a.v[i / 4][i % 4];
  return out;
}
inline BATON_NOINLINE float highest_of(const F& a) {
  float out = a.v[0][0];
  for (int i = 1; i < 16; ++i) out = a.v[i / 4][i % 4] > out ? a.v[i / 4][i % 4] : out;
  return out;
}
BATON_INLINE void sum4(const F& a, const F& b, const F& c, const F& d, float* to) {
  to[0] = sum_of(a);
  to[1] = sum_of(b);
  to[2] = sum_of(c);
  to[3] = sum_of(d);
}
BATON_INLINE F scale_by_power(const F& a, const F& n) {
  return each<F>([&](int i)
                     BATON_LAMBDA { return a.v[i] * as<F4>((__builtin_convertvector(n.v[i], I4) + 127) << 23); });
}

// As f16_to_f32: a power of two makes the exponent right, also of what is denormal; infinite and not a number apart.
BATON_INLINE F4 half_to_float(U4 half) {
  const U4 magnitude = (half & 0x7fff) << 13, sign = (half & 0x8000) << 16;
  const U4 scaled = as<U4>(as<F4>(magnitude) * 0x1p112f);
  const I4 special = magnitude >= 0x7c00u << 13;
  return as<F4>(select(special, magnitude | 0x7f800000, scaled) | sign);
}
inline BATON_NOINLINE F load_f16(const void* from) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  return each<F>([&](int i) BATON_LAMBDA {
    uint16_t bits[4];
    __builtin_memcpy(bits, bytes + 8 * i, sizeof(bits));
    return half_to_float(U4{bits[0], bits[1], bits[2], bits[3]});
  });
}
inline BATON_NOINLINE F load_f16(const void* from, int n) {
  uint16_t some[16] = {};
  for (int i = 0; i < n; ++i) some[i] = static_cast<const uint16_t*>(from)[i];
  return load_f16(some);
}
inline BATON_NOINLINE void store_f16(uint16_t* to, const F& a, int n) {
  for (int i = 0; i < n; ++i) to[i] = f32_to_f16(a.v[i / 4][i % 4]);
}
BATON_INLINE void store_f16(uint16_t* to, const F& a) { store_f16(to, a, kLanes); }
inline BATON_NOINLINE F load_bf16(const void* from, int n) {
  uint16_t bits[16] = {};
  __builtin_memcpy(bits, from, static_cast<size_t>(n) * 2);
  return each<F>([&](int i) BATON_LAMBDA {
    return as<F4>(U4{bits[4 * i], bits[4 * i + 1], bits[4 * i + 2], bits[4 * i + 3]} << 16);
  });
}
BATON_INLINE F load_bf16(const void* from) { return load_bf16(from, kLanes); }
BATON_INLINE F all_f16(const void* from) {
  uint16_t bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  const F4 value = half_to_float(U4{bits, bits, bits, bits});
  return {{value, value, value, value}};
}
BATON_INLINE void load_bf16_pairs(const unsigned char* from, F& even, F& odd) {
  even = each<F>([&](int i) BATON_LAMBDA { return as<F4>(load_vector<U4>(from, i) << 16); });
  odd = each<F>([&](int i) BATON_LAMBDA { return as<F4>(load_vector<U4>(from, i) & 0xffff0000u); });
}
inline void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}

// ---- Integers ----

BATON_INLINE I all(int32_t x) {
  const I4 four = {x, x, x, x};
  return {{four, four, four, four}};
}
BATON_INLINE I load_u8(const void* from) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  return each<I>([&](int i) BATON_LAMBDA {
    return I4{bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]};
  });
}
BATON_INLINE I load_i8(const void* from) {
  return each<I>([&](int i) BATON_LAMBDA { return load_u8(from).v[i] << 24 >> 24; });
}
BATON_INLINE I operator+(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return a.v[i] + b.v[i]; });
}
BATON_INLINE I operator-(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return a.v[i] - b.v[i]; });
}
BATON_INLINE I operator&(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return a.v[i] & b.v[i]; });
}
BATON_INLINE I operator<<(const I& a, int n) {
  return each<I>([&](int i) BATON_LAMBDA { return as<I4>(as<U4>(a.v[i]) << static_cast<uint32_t>(n)); });
}
BATON_INLINE I operator>>(const I& a, int n) {
  return each<I>([&](int i) BATON_LAMBDA { return a.v[i] >> n; });
}
BATON_INLINE I min(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return select(a.v[i] < b.v[i], a.v[i], b.v[i]); });
}
BATON_INLINE I max(const I& a, const I& b) {
  return each<I>([&](int i) BATON_LAMBDA { return select(a.v[i] > b.v[i], a.v[i], b.v[i]); });
}
BATON_INLINE F to_float(const I& a) {
  return each<F>([&](int i) BATON_LAMBDA { return __builtin_convertvector(a.v[i], F4); });
}
BATON_INLINE I to_int(const F& a) {
  return each<I>([&](int i) BATON_LAMBDA { return __builtin_convertvector(nearest(a.v[i]), I4); });
}
BATON_INLINE F float_of(const I& a) { return as<F>(a); }
BATON_INLINE I bits_of(const F& a) { return as<I>(a); }
inline BATON_NOINLINE int32_t sum_of(const I& a) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += a.v[i / 4][i % 4];
  return sum;
}
inline BATON_NOINLINE void store_narrow(int8_t* to, const I& a) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<int8_t>(a.v[i / 4][i % 4]);
}

// ---- Bytes ----

BATON_INLINE B load_bytes(const unsigned char* from) {
  return each<B>([&](int i) BATON_LAMBDA { return load_vector<B16>(from, i); });
}
BATON_INLINE void store_bytes(unsigned char* to, const B& a) { __builtin_memcpy(to, &a, sizeof(a)); }
// Four bytes are shifted at once: the mask takes away what crosses into a neighbour.
template <int Shift>
BATON_INLINE B16 field(B16 b, int mask) {
  U4 bits = as<U4>(b);
  if constexpr (Shift > 0) bits >>= Shift;
  if constexpr (Shift < 0) bits <<= -Shift;
  return as<B16>(bits & static_cast<uint32_t>(mask) * 0x01010101u);
}
template <int Shift>
BATON_INLINE B field(const B& b, int mask) {
  return each<B>([&](int i) BATON_LAMBDA { return field<Shift>(b.v[i], mask); });
}
template <int Shift>
BATON_INLINE B field_into(const B& low, const B& b, int mask) {
  return each<B>([&](int i) BATON_LAMBDA { return low.v[i] | field<Shift>(b.v[i], mask); });
}
inline BATON_NOINLINE B look_up(const B& codes, const unsigned char* table) {
  unsigned char out[64];
  store_bytes(out, codes);
  for (unsigned char& each : out) each = table[each];
  return load_bytes(out);
}
BATON_INLINE B add_bytes(const B& a, int x) {
  return each<B>([&](int i) BATON_LAMBDA { return a.v[i] + static_cast<uint8_t>(x); });
}
constexpr bool kDotKeepsBias = false;
// A call costs less than the code of all its places is worth.
template <int Bias>
BATON_NOINLINE I dot_of(const I& sum, const B& w, const int8_t* a) {
  return each<I>([&](int i) BATON_LAMBDA {
    const U4 bytes = as<U4>(w.v[i]);
    const auto code = [&](int k) BATON_LAMBDA { return as<I4>((bytes >> (8 * k)) & 255) - Bias; };
    return sum.v[i] + code(0) * a[0] + code(1) * a[1] + code(2) * a[2] + code(3) * a[3];
  });
}
BATON_INLINE I dot(const I& sum, const B& w, const int8_t* a) { return dot_of<0>(sum, w, a); }
BATON_INLINE I dot_biased(const I& sum, const B& w, const int8_t* a) { return dot_of<128>(sum, w, a); }

}  // namespace
}  // namespace baton::simd
