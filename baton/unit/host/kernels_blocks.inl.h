// How each integer packing's blocks become bytes and scales: BlockOf<packing>. Included as kernels_loops.inl.h is,
// after it and before kernels_int8.inl.h, which multiplies them.
//
// Blocks of 32 values of 16 rows. Two kinds of values: biased (v = q + 128, sum corrected by the activations' bias) and
// plain (v = q, 0 <= q < 64, which suits every instruction set's product of unsigned by signed bytes). Either may have
// minimums, which multiply the sum of the activations. kScales, kMinimums: how many per block.
#pragma once

#include "baton/unit/host/kernels_loops.inl.h"

namespace baton::host {
namespace {

constexpr int64_t kAheadBytes = 2048;

// Codes of 2 to 8 bits; layouts in pack.h.
template <int Bits>
struct Codes {
  static constexpr int kBytes = 64 * Bits;
  static constexpr bool kStreamed = true;
  const unsigned char* values;
  // As many lines as the block has; the next panel lies behind this one.
  BATON_INLINE void prefetch() const {
#pragma GCC unroll 8
    for (int i = 0; i < Bits; ++i) __builtin_prefetch(values + kAheadBytes + 64 * i);
  }
  template <int I>
  BATON_INLINE B quant() const {
    if constexpr (Bits == 8) return load_bytes(values + 64 * I);
    if constexpr (Bits < 4) {
      const B low = field<2 * (I % 4)>(load_bytes(values + 64 * (I / 4)), 3);
      if constexpr (Bits == 3) return field_into<I - 2>(low, load_bytes(values + 128), 4);
      return low;
    }
    const B low = field<I / 4 * 4>(load_bytes(values + 64 * (I % 4)), 15);
    if constexpr (Bits == 5) return field_into<I - 4>(low, load_bytes(values + 256), 16);
    if constexpr (Bits == 6) return field_into<2 * (I % 4) - 4>(low, load_bytes(values + 256 + 64 * (I / 4)), 48);
    return low;
  }
};

// The walk over a panel's groups: scales, then blocks of codes.
template <Packing P>
struct Grouped : Codes<group_layout(P).bits> {
  const unsigned char* scales;  // of the group
  int64_t at = 0;               // of the block in the group
  BATON_INLINE void open(const Matrix&, const unsigned char* panel) { enter(panel); }
  BATON_INLINE void next(int64_t b) {
    this->values += this->kBytes;
    at = (b + 1) % group_layout(P).blocks;
    if (at == 0) enter(this->values);
  }
  BATON_INLINE void enter(const unsigned char* group) {
    scales = group;
    this->values = group + group_layout(P).scale_bytes;
  }
};

// Signed codes stored with a bias: `Offset` makes them q + 128.
template <Packing P, int Offset>
struct Biased : Grouped<P> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1, kMinimums = 0;
  template <int I>
  BATON_INLINE B value() const {
    const B codes = this->template quant<I>();
    if constexpr (Offset == 0) return codes;
    return add_bytes(codes, Offset);
  }
};

template <Packing P>
struct Plain : Grouped<P> {
  static constexpr bool kPlain = true;
  static constexpr int kScales = 1, kMinimums = 1;
  template <int I>
  BATON_INLINE B value() const {
    return this->template quant<I>();
  }
};

// What the 4-bit codes of a format mean, plus 128.
struct Iq4Table {
  static constexpr unsigned char kValues[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                129, 141, 153, 166, 181, 197, 217, 241};
};
struct Fp4Table {  // twice the value
  static constexpr unsigned char kValues[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                                128, 127, 126, 125, 124, 122, 120, 116};
};

template <Packing P, class Table>
struct LookedUp : Grouped<P> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1, kMinimums = 0;
  template <int I>
  BATON_INLINE B value() const {
    return look_up(this->template quant<I>(), Table::kValues);
  }
};

// Scales of one f16 per block.
template <class Base>
struct F16Scales : Base {
  template <int I>
  BATON_INLINE F scale() const {
    return load_f16(this->scales + 32 * this->at);
  }
};

// Q4_1 and Q5_1.
template <Packing P>
struct WithMinimum : Plain<P> {
  template <int I>
  BATON_INLINE F scale() const {
    return load_f16(this->scales);
  }
  template <int I>
  BATON_INLINE F minimum() const {
    return load_f16(this->scales + 32);
  }
};

// Q4_K and Q5_K.
template <Packing P>
struct Super : Plain<P> {
  template <int I>
  BATON_INLINE F scale() const {
    return load_f16(this->scales) * to_float(load_u8(this->scales + 64 + 16 * this->at));
  }
  template <int I>
  BATON_INLINE F minimum() const {
    return F{} - load_f16(this->scales + 32) * to_float(load_u8(this->scales + 192 + 16 * this->at));
  }
};

// Q3_K and Q6_K.
template <Packing P, int Offset>
struct Halves : Biased<P, Offset> {
  static constexpr int kScales = 2;
  template <int I>
  BATON_INLINE F scale() const {
    return load_f16(this->scales) * to_float(load_i8(this->scales + 32 + 32 * this->at + 16 * I));
  }
};

// MLX's affine formats. Codes of 8 bits are biased, so their minimum is m + 128 d.
template <Packing P>
struct Affine : Codes<group_layout(P).bits> {
  static constexpr bool kPlain = group_layout(P).bits < 8;
  static constexpr int kScales = 1, kMinimums = 1;
  const float* scales;
  int64_t left, group_blocks;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    group_blocks = w.group / kBlock;
    enter(panel);
  }
  BATON_INLINE void next(int64_t) {
    this->values += this->kBytes;
    if (--left == 0) enter(this->values);
  }
  BATON_INLINE void enter(const unsigned char* group) {
    left = group_blocks;
    scales = reinterpret_cast<const float*>(group);
    this->values = group + group_layout(P).scale_bytes;
  }
  template <int I>
  BATON_INLINE B value() const {
    return this->template quant<I>();
  }
  template <int I>
  BATON_INLINE F scale() const {
    return load(scales);
  }
  template <int I>
  BATON_INLINE F minimum() const {
    return load(scales + 16);
  }
};

template <Packing P>
struct BlockOf : Affine<P> {};

template <>
struct BlockOf<Packing::kQ8_0> : F16Scales<Biased<Packing::kQ8_0, 0>> {};
template <>
struct BlockOf<Packing::kQ4_0> : F16Scales<Biased<Packing::kQ4_0, 128 - 8>> {};
template <>
struct BlockOf<Packing::kQ5_0> : F16Scales<Biased<Packing::kQ5_0, 128 - 16>> {};
template <>
struct BlockOf<Packing::kIQ4_NL> : F16Scales<LookedUp<Packing::kIQ4_NL, Iq4Table>> {};
template <>
struct BlockOf<Packing::kQ4_1> : WithMinimum<Packing::kQ4_1> {};
template <>
struct BlockOf<Packing::kQ5_1> : WithMinimum<Packing::kQ5_1> {};
template <>
struct BlockOf<Packing::kQ4_K> : Super<Packing::kQ4_K> {};
template <>
struct BlockOf<Packing::kQ5_K> : Super<Packing::kQ5_K> {};
template <>
struct BlockOf<Packing::kQ6_K> : Halves<Packing::kQ6_K, 128 - 32> {};
template <>
struct BlockOf<Packing::kQ3_K> : Halves<Packing::kQ3_K, 128 - 4> {};

template <>
struct BlockOf<Packing::kQ2_K> : Plain<Packing::kQ2_K> {
  static constexpr int kScales = 2, kMinimums = 2;
  template <int I>
  BATON_INLINE F scale() const {
    return load_f16(this->scales) * to_float(load_u8(this->scales + 64 + 32 * this->at + 16 * I) & all(15));
  }
  template <int I>
  BATON_INLINE F minimum() const {
    const auto codes = load_u8(this->scales + 64 + 32 * this->at + 16 * I) >> 4;
    return F{} - load_f16(this->scales + 32) * to_float(codes);
  }
};

template <>
struct BlockOf<Packing::kIQ4_XS> : LookedUp<Packing::kIQ4_XS, Iq4Table> {
  template <int I>
  BATON_INLINE F scale() const {
    return load_f16(this->scales) * to_float(load_i8(this->scales + 32 + 16 * this->at));
  }
};

// A scale of 2^(e - 128); the first two are denormal: 1 << 21 and 2 << 21.
template <>
struct BlockOf<Packing::kMXFP4> : LookedUp<Packing::kMXFP4, Fp4Table> {
  template <int I>
  BATON_INLINE F scale() const {
    const auto e = load_u8(this->scales + 16 * this->at), one = all(1);
    return float_of(max((e - one) << 23, (min(e, one) + one) << 21));
  }
};

// f(packing) for every packing of integers, as a constant.
template <class Function>
constexpr void each_integer_packing(Function&& f) {
  unroll<kPackings - static_cast<int>(Packing::kQ8_0)>(
      [&](auto i) { f(Constant<static_cast<int>(Packing::kQ8_0) + decltype(i)::value>{}); });
}

}  // namespace
}  // namespace baton::host
