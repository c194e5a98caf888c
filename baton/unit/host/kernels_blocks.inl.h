// How each integer packing's blocks become bytes and scales: BlockOf<packing>, which products of integers multiply.
//
// Blocks of 32 values of 16 rows. Two kinds of values: biased (v = q + 128, sum corrected by the activations' bias) and
// plain (v = q, 0 <= q < 64, which suits every instruction set's product of unsigned by signed bytes). Either may have
// minimums, which multiply the sum of the activations. kScales, kMinimums: how many per block.
#pragma once

#include "baton/unit/host/kernels_loops.inl.h"

namespace baton::host {
namespace {

// What codes stand for, plus 128.
struct ByteTable {
  unsigned char at[16];
};
constexpr ByteTable bytes_of(CodeTable of) {
  ByteTable table{};
  const int8_t* const values = values_of(of);
  for (int i = 0; values != nullptr && i < 16; ++i) table.at[i] = static_cast<unsigned char>(values[i] + 128);
  return table;
}
template <CodeTable kTable>
constexpr ByteTable kBytesOf = bytes_of(kTable);

// The walk over the blocks of a panel, by the packing's Coding and layout (packing.h).
template <Packing P>
struct BlockOf {
  static_assert(is_integer(P));
  static constexpr Coding kCoding = coding_of(P);
  static constexpr GroupLayout kLayout = group_layout(P);
  static constexpr int kBits = kCoding.bits, kBytes = 64 * kBits;
  static constexpr bool kStreamed = true;
  // Codes of 8 bits with minimums are biased: their minimum is m + 128 d.
  static constexpr bool kPlain = kCoding.minimums && kBits < 8;
  // Bytes and a scale, as BlockUnpacked would hold them.
  static constexpr bool kIsUnpacked = kBits == 8 && !kCoding.minimums;
  static constexpr int kScales = kLayout.block_parts == 2 ? 2 : 1, kMinimums = kCoding.minimums ? kScales : 0;

  const unsigned char* values;
  const unsigned char* scales;         // of the group
  int64_t at = 0;                      // of the block in the group
  int64_t left = 0, group_blocks = 0;  // of a group, where the layout leaves it open

  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    if constexpr (kLayout.blocks == 0) group_blocks = w.group / kBlock;
    enter(panel);
  }
  BATON_INLINE void next(int64_t b) {
    values += kBytes;
    if constexpr (kLayout.blocks == 0) {
      if (--left == 0) enter(values);
    } else {
      at = (b + 1) % kLayout.blocks;
      if (at == 0) enter(values);
    }
  }
  BATON_INLINE void enter(const unsigned char* group) {
    left = group_blocks;
    scales = group;
    values = group + kLayout.scale_bytes;
  }
  // The lines of the block, kAheadBytes on, and before a group's first those of its scales: blocks in turn leave no
  // line out. The next panel lies behind this one.
  BATON_INLINE void prefetch() const {
    const unsigned char* const ahead = values + kAheadBytes;
    if (scales + kLayout.scale_bytes == values) {
      for (int i = kLayout.scale_bytes; i > 0; i -= 64) __builtin_prefetch(ahead - i, 0, 2);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kBits; ++i) __builtin_prefetch(ahead + 64 * i, 0, 2);
  }

  template <int K>
  BATON_INLINE B code() const {
    if constexpr (kBits == 8) return load_bytes(values + 64 * K);
    if constexpr (kBits == 1) return field<K>(load_bytes(values), 1);
    if constexpr (kBits < 4) {
      const B low = field<2 * (K % 4)>(load_bytes(values + 64 * (K / 4)), 3);
      if constexpr (kBits == 3) return field_into<K - 2>(low, load_bytes(values + 128), 4);
      return low;
    }
    const B low = field<K / 4 * 4>(load_bytes(values + 64 * (K % 4)), 15);
    if constexpr (kBits == 5) return field_into<K - 4>(low, load_bytes(values + 256), 16);
    if constexpr (kBits == 6) return field_into<2 * (K % 4) - 4>(low, load_bytes(values + 256 + 64 * (K / 4)), 48);
    return low;
  }
  template <int K>
  BATON_INLINE B value() const {
    const B q = code<K>();
    if constexpr (kCoding.table != CodeTable::kNone) return look_up(q, kBytesOf<kCoding.table>.at);
    if constexpr (kCoding.minimums || kCoding.zero == 128) return q;
    return add_bytes(q, 128 - kCoding.zero);
  }

  BATON_INLINE F stored(int offset) const {
    const unsigned char* const from = scales + kLayout.d_stride * at + offset;
    if constexpr (kCoding.scale == ScaleType::kF32) return load(reinterpret_cast<const float*>(from));
    if constexpr (kCoding.halvings > 0) return load_f16(from) * all(1.0f / (1 << kCoding.halvings));
    if constexpr (kCoding.scale == ScaleType::kF16) return load_f16(from);
    // 2^(e - 128); the first two are denormal: 1 << 21 and 2 << 21.
    const auto e = load_u8(from), one = all(1);
    return float_of(max((e - one) << 23, (min(e, one) + one) << 21));
  }
  template <int K>
  BATON_INLINE const unsigned char* part(int offset) const {
    return scales + offset + kLanes * (kScales * at + K);
  }
  // Half of an E4M3 number: three bits of fraction, and before them a 1 unless the exponent is 0.
  template <int K>
  BATON_INLINE F half_e4m3() const {
    const auto bits = load_u8(part<K>(kLayout.s)), e = bits >> 3;
    const auto fraction = (bits & all(7)) + (min(e, all(1)) << 3);
    return to_float(fraction) * float_of((max(e, all(1)) + all(116)) << 23);
  }
  template <int K>
  BATON_INLINE F scale() const {
    if constexpr (kCoding.scale == ScaleType::kNone) return half_e4m3<K>();
    const F d = stored(0);
    if constexpr (kCoding.e4m3) return d * half_e4m3<K>();
    if constexpr (kCoding.parts == 0) return d;
    if constexpr (!kCoding.minimums) return d * to_float(load_i8(part<K>(kLayout.s)));
    if constexpr (kCoding.part_bits == 4) return d * to_float(load_u8(part<K>(kLayout.s)) & all(15));
    return d * to_float(load_u8(part<K>(kLayout.s)));
  }
  template <int K>
  BATON_INLINE F minimum() const {
    const F m = stored(kLayout.m);
    if constexpr (kCoding.parts == 0) return m;
    if constexpr (kCoding.part_bits == 4) return F{} - m * to_float(load_u8(part<K>(kLayout.s)) >> 4);
    return F{} - m * to_float(load_u8(part<K>(kLayout.n)));
  }
};

// f(packing) for every packing of integers, as a constant.
template <class Function>
constexpr void each_integer_packing(Function&& f) {
  unroll<kPackings>([&](auto i) {
    if constexpr (is_integer(static_cast<Packing>(decltype(i)::value))) f(i);
  });
}

}  // namespace
}  // namespace baton::host
