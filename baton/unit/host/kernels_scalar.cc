// The set without instruction-set intrinsics: sixteen lanes as four vectors of the compiler's, for any processor.
#include "baton/base/float.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {
namespace {

#include "baton/unit/host/kernels_loops.inl.h"

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

template <class To, class From>
BATON_INLINE To bits_of(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
template <class V>
BATON_INLINE V select(I4 mask, V yes, V no) {
  return bits_of<V>((bits_of<I4>(yes) & mask) | (bits_of<I4>(no) & ~mask));
}

struct Lanes {
  struct F {
    F4 v[4];
  };
  struct I {
    I4 v[4];
  };
  struct B {
    B16 v[4];
  };
  static constexpr int kIntegerPanels = 1, kIntegerTokens = 1, kFloatPanels = 1, kFloatTokens = 2;
  static constexpr int kDirectTokens = 4;  // up to here weights are unpacked in registers, once for all tokens

  template <class Out, class Function>
  static BATON_INLINE Out each(Function f) {
    return {{f(0), f(1), f(2), f(3)}};
  }
  template <class V>
  static BATON_INLINE V load_vector(const void* from, int quarter) {
    V out;
    __builtin_memcpy(&out, static_cast<const unsigned char*>(from) + sizeof(V) * static_cast<size_t>(quarter),
                     sizeof(V));
    return out;
  }

  static BATON_INLINE F zero() { return F{}; }
  static BATON_INLINE F set1(float x) {
    const F4 all = {x, x, x, x};
    return {{all, all, all, all}};
  }
  static BATON_INLINE F load(const float* from) {
    return each<F>([&](int i) BATON_LAMBDA { return load_vector<F4>(from, i); });
  }
  static BATON_NOINLINE F load_n(const float* from, int n) {
    float some[16] = {};
    for (int i = 0; i < n; ++i) some[i] = from[i];
    return load(some);
  }
  static BATON_INLINE void store(float* to, const F& a) { __builtin_memcpy(to, &a, sizeof(a)); }
  static BATON_NOINLINE void store_n(float* to, const F& a, int n) {
    float all[16];
    store(all, a);
    for (int i = 0; i < n; ++i) to[i] = all[i];
  }
  static BATON_INLINE F add(const F& a, const F& b) {
    return each<F>([&](int i) BATON_LAMBDA { return a.v[i] + b.v[i]; });
  }
  static BATON_INLINE F sub(const F& a, const F& b) {
    return each<F>([&](int i) BATON_LAMBDA { return a.v[i] - b.v[i]; });
  }
  static BATON_INLINE F mul(const F& a, const F& b) {
    return each<F>([&](int i) BATON_LAMBDA { return a.v[i] * b.v[i]; });
  }
  static BATON_INLINE F div(const F& a, const F& b) {
    return each<F>([&](int i) BATON_LAMBDA { return a.v[i] / b.v[i]; });
  }
  static BATON_INLINE F fma(const F& a, const F& b, const F& c) {
    return each<F>([&](int i) BATON_LAMBDA { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static BATON_INLINE F min(const F& a, const F& b) {
    return each<F>([&](int i) BATON_LAMBDA { return select(a.v[i] < b.v[i], a.v[i], b.v[i]); });
  }
  static BATON_INLINE F max(const F& a, const F& b) {
    return each<F>([&](int i) BATON_LAMBDA { return select(a.v[i] > b.v[i], a.v[i], b.v[i]); });
  }
  static BATON_INLINE F abs(const F& a) {
    return each<F>([&](int i) BATON_LAMBDA { return bits_of<F4>(bits_of<I4>(a.v[i]) & 0x7fffffff); });
  }
  // Adding 1.5 * 2^23 leaves no fraction bits: nearest, ties to even, for |a| < 2^22.
  static BATON_INLINE F4 nearest(F4 a) { return a + 12582912.0f - 12582912.0f; }
  static BATON_INLINE F round(const F& a) {
    return each<F>([&](int i) BATON_LAMBDA { return nearest(a.v[i]); });
  }
  static BATON_NOINLINE float sum(const F& a) {
    float out = 0;
    for (int i = 0; i < 16; ++i) out += a.v[i / 4][i % 4];
    return out;
  }
  static BATON_NOINLINE float highest(const F& a) {
    float out = a.v[0][0];
    for (int i = 1; i < 16; ++i) out = a.v[i / 4][i % 4] > out ? a.v[i / 4][i % 4] : out;
    return out;
  }
  static BATON_INLINE void sum4(const F& a, const F& b, const F& c, const F& d, float* to) {
    to[0] = sum(a);
    to[1] = sum(b);
    to[2] = sum(c);
    to[3] = sum(d);
  }
  static BATON_INLINE F scale_by_power(const F& a, const F& n) {
    return each<F>(
        [&](int i) BATON_LAMBDA { return a.v[i] * bits_of<F4>((__builtin_convertvector(n.v[i], I4) + 127) << 23); });
  }
  static BATON_NOINLINE F exp_limits(const F& y, const F& x) {
    const F4 infinite = set1(__builtin_inff()).v[0];
    return each<F>([&](int i) BATON_LAMBDA {
      F4 out = select(x.v[i] < -87.3f, F4{}, y.v[i]);
      out = select(x.v[i] > 88.37f, infinite, out);
      return select(x.v[i] != x.v[i], x.v[i], out);
    });
  }
  // As f16_to_f32: a power of two makes the exponent right, also of what is denormal; infinite and not a number apart.
  static BATON_INLINE F4 half_to_float(U4 half) {
    const U4 magnitude = (half & 0x7fff) << 13, sign = (half & 0x8000) << 16;
    const U4 scaled = bits_of<U4>(bits_of<F4>(magnitude) * 0x1p112f);
    const I4 special = magnitude >= 0x7c00u << 13;
    return bits_of<F4>(select(special, magnitude | 0x7f800000, scaled) | sign);
  }
  static BATON_NOINLINE F load_f16(const void* from) {
    const auto* bytes = static_cast<const unsigned char*>(from);
    return each<F>([&](int i) BATON_LAMBDA {
      uint16_t bits[4];
      __builtin_memcpy(bits, bytes + 8 * i, sizeof(bits));
      return half_to_float(U4{bits[0], bits[1], bits[2], bits[3]});
    });
  }
  static BATON_NOINLINE F load_f16_n(const uint16_t* from, int n) {
    uint16_t some[16] = {};
    for (int i = 0; i < n; ++i) some[i] = from[i];
    return load_f16(some);
  }
  static BATON_INLINE void store_f16(uint16_t* to, const F& a) { store_f16_n(to, a, 16); }
  static BATON_NOINLINE void store_f16_n(uint16_t* to, const F& a, int n) {
    for (int i = 0; i < n; ++i) to[i] = f32_to_f16(a.v[i / 4][i % 4]);
  }
  static BATON_INLINE void load_bf16_pairs(const void* from, F& even, F& odd) {
    even = each<F>([&](int i) BATON_LAMBDA { return bits_of<F4>(load_vector<U4>(from, i) << 16); });
    odd = each<F>([&](int i) BATON_LAMBDA { return bits_of<F4>(load_vector<U4>(from, i) & 0xffff0000u); });
  }
  static BATON_INLINE U4 wide(const unsigned char* from) { return U4{from[0], from[1], from[2], from[3]}; }
  static BATON_INLINE F4 floats(U4 a) { return __builtin_convertvector(bits_of<I4>(a), F4); }
  static BATON_INLINE F load_u8(const unsigned char* from) {
    return each<F>([&](int i) BATON_LAMBDA { return floats(wide(from + 4 * i)); });
  }
  static BATON_INLINE F load_i8(const unsigned char* from) {
    return each<F>(
        [&](int i) BATON_LAMBDA { return __builtin_convertvector(bits_of<I4>(wide(from + 4 * i) << 24) >> 24, F4); });
  }
  static BATON_INLINE F load_low_nibbles(const unsigned char* from) {
    return each<F>([&](int i) BATON_LAMBDA { return floats(wide(from + 4 * i) & 15); });
  }
  static BATON_INLINE F load_high_nibbles(const unsigned char* from) {
    return each<F>([&](int i) BATON_LAMBDA { return floats(wide(from + 4 * i) >> 4); });
  }
  // 2^(e - 128); the first two are denormal.
  static BATON_NOINLINE F load_half_powers(const unsigned char* from) {
    return each<F>([&](int i) BATON_LAMBDA {
      const U4 e = wide(from + 4 * i);
      return bits_of<F4>(select(bits_of<I4>(e) < 2, (e + 1) << 21, (e - 1) << 23));
    });
  }
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) to[j * to_stride + i] = from[i * from_stride + j];
    }
  }

  static BATON_INLINE B load_bytes(const unsigned char* from) {
    return each<B>([&](int i) BATON_LAMBDA { return load_vector<B16>(from, i); });
  }
  static BATON_INLINE void store_bytes(unsigned char* to, const B& a) { __builtin_memcpy(to, &a, sizeof(a)); }
  // Bits of each byte, by shifts of four at once: what crosses into a neighbour is masked away.
  template <int Shift>
  static BATON_INLINE B16 bits_at(B16 a, uint32_t mask) {
    return bits_of<B16>((bits_of<U4>(a) >> Shift) & (mask * 0x01010101u));
  }
  static BATON_INLINE B low_nibbles(const B& a) {
    return each<B>([&](int i) BATON_LAMBDA { return bits_at<0>(a.v[i], 15); });
  }
  static BATON_INLINE B high_nibbles(const B& a) {
    return each<B>([&](int i) BATON_LAMBDA { return bits_at<4>(a.v[i], 15); });
  }
  template <int Bit>
  static BATON_INLINE B with_bit4(const B& low, const B& high) {
    return each<B>([&](int i)
                       BATON_LAMBDA { return low.v[i] | bits_of<B16>(bits_of<U4>(bits_at<Bit>(high.v[i], 1)) << 4); });
  }
  template <int Pair>
  static BATON_INLINE B with_bits45(const B& low, const B& high) {
    return each<B>(
        [&](int i) BATON_LAMBDA { return low.v[i] | bits_of<B16>(bits_of<U4>(bits_at<2 * Pair>(high.v[i], 3)) << 4); });
  }
  template <int Pair>
  static BATON_INLINE B bit_pairs(const B& a) {
    return each<B>([&](int i) BATON_LAMBDA { return bits_at<2 * Pair>(a.v[i], 3); });
  }
  template <int Bit>
  static BATON_INLINE B with_bit2(const B& low, const B& high) {
    return each<B>([&](int i)
                       BATON_LAMBDA { return low.v[i] | bits_of<B16>(bits_of<U4>(bits_at<Bit>(high.v[i], 1)) << 2); });
  }
  static BATON_NOINLINE B look_up(const B& codes, const unsigned char* table) {
    unsigned char out[64];
    store_bytes(out, codes);
    for (unsigned char& each : out) each = table[each];
    return load_bytes(out);
  }
  static BATON_INLINE B add_bytes(const B& a, int x) {
    return each<B>([&](int i) BATON_LAMBDA { return a.v[i] + static_cast<uint8_t>(x); });
  }
  static BATON_INLINE I zero_int() { return I{}; }
  static BATON_INLINE I start_biased(const int32_t*) { return I{}; }
  // Four bytes of each lane by four of the activations. A call costs less than the code of all its places is worth.
  template <int Bias>
  static BATON_NOINLINE I dot(const I& sum, const B& w, const int8_t* a) {
    return each<I>([&](int i) BATON_LAMBDA {
      const U4 bytes = bits_of<U4>(w.v[i]);
      const auto code = [&](int k) BATON_LAMBDA { return bits_of<I4>((bytes >> (8 * k)) & 255) - Bias; };
      return sum.v[i] + code(0) * a[0] + code(1) * a[1] + code(2) * a[2] + code(3) * a[3];
    });
  }
  static BATON_INLINE I dot_plain(const I& sum, const B& w, const int8_t* a) { return dot<0>(sum, w, a); }
  static BATON_INLINE I dot_biased(const I& sum, const B& w, const int8_t* a) { return dot<128>(sum, w, a); }
  static BATON_INLINE F to_float(const I& a) {
    return each<F>([&](int i) BATON_LAMBDA { return __builtin_convertvector(a.v[i], F4); });
  }
  static BATON_INLINE I times_128(const I& a) {
    return each<I>([&](int i) BATON_LAMBDA { return a.v[i] * 128; });
  }
  static BATON_INLINE I to_int(const F& a) {
    return each<I>([&](int i) BATON_LAMBDA { return __builtin_convertvector(nearest(a.v[i]), I4); });
  }
  static BATON_INLINE I divide_128(const I& a) {
    return each<I>([&](int i) BATON_LAMBDA { return (a.v[i] + 64) >> 7; });
  }
  static BATON_INLINE I sub_int(const I& a, const I& b) {
    return each<I>([&](int i) BATON_LAMBDA { return a.v[i] - b.v[i]; });
  }
  static BATON_NOINLINE int32_t sum_int(const I& a) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += a.v[i / 4][i % 4];
    return sum;
  }
  static BATON_NOINLINE void store_narrow(int8_t* to, const I& a) {
    for (int i = 0; i < 16; ++i) to[i] = static_cast<int8_t>(a.v[i / 4][i % 4]);
  }
};

#include "baton/unit/host/kernels_table.inl.h"

}  // namespace

const Kernels& kernels_scalar();
const Kernels& kernels_scalar() {
  static constexpr Kernels kKernels = make_kernels("scalar", "scalar");
  return kKernels;
}

}  // namespace baton::host
