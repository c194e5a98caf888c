// What a format's file gives to the table in format.cc: how a block is taken apart and, when this project can write it,
// its encoder. The decoder follows from the format's Coding.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/quant/format.h"

namespace baton {

using Unpack = void (*)(const std::byte* block, Codes& to);
using Encode = void (*)(const float* from, std::byte* to, size_t count);
using EncodeWeighted = void (*)(const float* from, const float* importance, std::byte* to, size_t count);

struct Codec {
  Unpack unpack;
  void (*decode)(const std::byte* from, float* to, size_t count);
  Encode encode = nullptr;                   // null: read only
  EncodeWeighted encode_weighted = nullptr;  // a row, with a weight for each of its values; null: uses no weights
};

// Defined once per format, in its file.
template <DType kType>
Codec codec();
#define BATON_FORMAT(name, ...) \
  template <>                   \
  Codec codec<DType::k##name>();
#include "baton/quant/format_list.inc"
#undef BATON_FORMAT

template <DType kType>
inline constexpr size_t kBlockBytes = line_of(kType).block_bytes;

inline uint8_t u8_at(const std::byte* from, size_t index) { return static_cast<uint8_t>(from[index]); }
inline float f16_at(const std::byte* from) { return f16_to_f32(load_as<uint16_t>(from)); }
inline void store_f16(std::byte* to, float value) { store_as<uint16_t>(to, f32_to_f16(value)); }

// Toward zero, into [low, high]; NaN becomes `low`: damaged weights must not be undefined behaviour.
inline int truncate_to(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  return value < static_cast<float>(high) ? static_cast<int>(value) : high;
}

// 1/d, or 0 for an all-zero block: the older formats multiply by the reciprocal, and the last bit depends on it.
inline float reciprocal_or_zero(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

// 2^(e - 128); the two smallest are denormal.
inline float power_of(uint32_t e) { return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

// N codes in the low halves of N bytes, then N in the high ones.
template <size_t N>
void unpack_nibbles(const std::byte* __restrict from, uint8_t* __restrict codes) {
  for (size_t i = 0; i < N; ++i) {
    codes[i] = u8_at(from, i) & 15;
    codes[N + i] = u8_at(from, i) >> 4;
  }
}
template <size_t N>
void pack_nibbles(const uint8_t* __restrict codes, std::byte* __restrict to) {
  for (size_t i = 0; i < N; ++i) to[i] = static_cast<std::byte>((codes[i] & 15) | (codes[N + i] & 15) << 4);
}
// 32 codes of 5 bits: u32 with the fifth bit of each, then nibbles.
inline void unpack_fives(const std::byte* from, uint8_t* codes) {
  const auto high = load_as<uint32_t>(from);
  unpack_nibbles<16>(from + 4, codes);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (high >> i & 1) << 4);
}
inline void pack_fives(const uint8_t* codes, std::byte* to) {
  uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= static_cast<uint32_t>(codes[i] >> 4) << i;
  store_as<uint32_t>(to, high);
  pack_nibbles<16>(codes, to + 4);
}

// Half of an E4M3 number without sign.
inline float half_e4m3(uint32_t bits) {
  const uint32_t e = bits >> 3 & 15, fraction = (bits & 7) | (e > 0 ? 8 : 0);
  return static_cast<float>(fraction) * std::bit_cast<float>(((e > 0 ? e : 1) + 116) << 23);
}

template <Coding kCoding>
float scale_value(uint32_t bits) {
  if constexpr (kCoding.scale == ScaleType::kF32) return std::bit_cast<float>(bits);
  if constexpr (kCoding.scale == ScaleType::kPower) return power_of(bits);
  if constexpr (kCoding.scale == ScaleType::kNone) return 1.0f;
  constexpr float kFactor = 1.0f / (1 << kCoding.halvings);
  return f16_to_f32(static_cast<uint16_t>(bits)) * kFactor;
}

template <DType kType, Unpack kUnpack>
void decode_blocks(const std::byte* __restrict from, float* __restrict to, size_t count) {
  constexpr Coding kCoding = line_of(kType).coding;
  constexpr size_t kElements = line_of(kType).block_elements;
  constexpr size_t kParts = kCoding.parts == 0 ? 1 : kCoding.parts, kPart = kElements / kParts;
  Codes block;
  for (size_t done = 0; done < count; done += kElements, from += line_of(kType).block_bytes) {
    kUnpack(from, block);
    const float d = scale_value<kCoding>(block.d);
    const float m = kCoding.minimums ? scale_value<kCoding>(block.m) : 0.0f;
    for (size_t part = 0; part < kParts; ++part, to += kPart) {
      const uint8_t* const codes = block.codes + part * kPart;
      const int s = kCoding.minimums ? block.s[part] : static_cast<int8_t>(block.s[part]);
      const float factor = kCoding.e4m3 ? half_e4m3(block.s[part]) : static_cast<float>(s);
      const float scale = kCoding.parts == 0 ? d : d * factor;
      const float minimum = kCoding.parts == 0 ? m : m * static_cast<float>(block.n[part]);
      for (size_t i = 0; i < kPart; ++i) {
        int v = codes[i] - kCoding.zero;
        if constexpr (kCoding.table != CodeTable::kNone) v = values_of(kCoding.table)[codes[i]];
        const float scaled = scale * static_cast<float>(v);
        to[i] = !kCoding.minimums ? scaled : kCoding.parts == 0 ? scaled + minimum : scaled - minimum;
      }
    }
  }
}

template <DType kType, Unpack kUnpack>
Codec codec_of(Encode encode = nullptr, EncodeWeighted encode_weighted = nullptr) {
  return {kUnpack, decode_blocks<kType, kUnpack>, encode, encode_weighted};
}

}  // namespace baton
