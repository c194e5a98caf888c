// Codes of 1 to 8 bits as the planes of a Matrix hold them (instruction.h), taken apart into bytes: codes.h says what
// these mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "baton/base/float.h"
#include "baton/unit/cuda/instruction.h"

#ifdef __CUDACC__
#define BATON_INLINE __host__ __device__ __forceinline__
#else
#define BATON_INLINE inline
#endif

namespace baton::cuda {

BATON_INLINE float float_of_f16(uint16_t bits) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  return f16_to_f32(bits);
#endif
}
BATON_INLINE float float_of_bf16(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits << 16);
#else
  return bf16_to_f32(static_cast<uint16_t>(bits));
#endif
}
// Two values as bf16, the first in the low half.
BATON_INLINE uint32_t bf16_pair(float first, float second) {
#ifdef __CUDA_ARCH__
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return f32_to_bf16(first) | static_cast<uint32_t>(f32_to_bf16(second)) << 16;
#endif
}

// Byte i is that of (a, b) which half-byte i of `choice` names; half-bytes are below 8, those above the fourth ignored.
BATON_INLINE uint32_t permute(uint32_t a, uint32_t b, uint32_t choice) {
#ifdef __CUDA_ARCH__
  uint32_t picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(a), "r"(b), "r"(choice));
  return picked;
#else
  const uint64_t both = a | static_cast<uint64_t>(b) << 32;
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) picked |= static_cast<uint32_t>(both >> (8 * (choice >> (4 * i) & 7)) & 255) << (8 * i);
  return picked;
#endif
}

// Byte b of a word less `zero`, an integer of 8 bits, as a float: no conversion, which cards do at a quarter of their
// speed.
template <int kByte>
BATON_INLINE float float_of_byte(uint32_t word, float zero = 0.0f) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(permute(word ^ 0x80808080u, 0x4b000000u, 0x7440 | kByte)) - (8388736.0f + zero);
#else
  return static_cast<float>(static_cast<int8_t>(word >> (8 * kByte))) - zero;
#endif
}
template <int kByte>
BATON_INLINE float float_of_unsigned_byte(uint32_t word) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(permute(word, 0x4b000000u, 0x7440 | kByte)) - 8388608.0f;
#else
  return static_cast<float>(word >> (8 * kByte) & 255);
#endif
}

template <int kBits>
struct Raw {
  static_assert((kBits >= 1 && kBits <= 6) || kBits == 8);
  uint32_t words[kBits];
};
template <int kBits>
struct Group {
  uint32_t words[8];
};

// kCached: from any memory. kStreamed: of the card's memory, read once.
enum class Reading { kCached, kStreamed };

// kWords words, aligned to as many.
template <int kWords, Reading kReading>
BATON_INLINE void load_words(const unsigned char* from, uint32_t* to) {
  static_assert(kWords == 1 || kWords == 2 || kWords == 4);
#ifdef __CUDA_ARCH__
  if constexpr (kReading == Reading::kCached) {
    if constexpr (kWords == 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(from);
      to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else if constexpr (kWords == 2) {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      to[0] = v.x, to[1] = v.y;
    } else {
      to[0] = *reinterpret_cast<const uint32_t*>(from);
    }
  } else if constexpr (kWords == 4) {
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "l"(from));
  } else if constexpr (kWords == 2) {
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
  } else {
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(to[0]) : "l"(from));
  }
#else
  std::memcpy(to, from, 4 * kWords);
#endif
}

// The words of a group, of planes of `groups`.
template <int kBits, Reading kReading = Reading::kCached>
BATON_INLINE Raw<kBits> load_raw(const unsigned char* planes, int32_t groups, int32_t group) {
  Raw<kBits> raw;
  constexpr bool kFour = kBits >= 4, kTwo = kBits < 8 && (kBits & 2) != 0, kOne = (kBits & 1) != 0;
  constexpr int kTwosAt = kFour ? 4 : 0, kOnesAt = kTwosAt + (kTwo ? 2 : 0);
  if constexpr (kFour) load_words<4, kReading>(planes + 16 * group, raw.words);
  if constexpr (kBits == 8) load_words<4, kReading>(planes + 16 * (groups + group), raw.words + 4);
  if constexpr (kTwo) load_words<2, kReading>(planes + 4 * kTwosAt * groups + 8 * group, raw.words + kTwosAt);
  if constexpr (kOne) load_words<1, kReading>(planes + 4 * kOnesAt * groups + 4 * group, raw.words + kOnesAt);
  return raw;
}

// Codes as they are: q of a matrix without a table.
template <int kBits>
BATON_INLINE Group<kBits> take_apart(const Raw<kBits>& raw) {
  Group<kBits> group;
  constexpr bool kFour = kBits >= 4 && kBits < 8, kTwo = kBits < 8 && (kBits & 2) != 0, kOne = (kBits & 1) != 0;
  constexpr int kTwosAt = kFour ? 4 : 0, kOnesAt = kTwosAt + (kTwo ? 2 : 0);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < 8; ++i) {
    uint32_t word = 0;
    if constexpr (kBits == 8) word = raw.words[i];
    if constexpr (kFour) word = (i < 4 ? raw.words[i & 3] : raw.words[i & 3] >> 4) & 0x0f0f0f0fu;
    if constexpr (kTwo) {
      const uint32_t twos = raw.words[kTwosAt + (i & 1)];
      const int from = i & 6, to = kFour ? 4 : 0;
      word |= (from >= to ? twos >> (from - to) : twos << (to - from)) & (0x03030303u << to);
    }
    if constexpr (kOne) {
      const uint32_t ones = raw.words[kOnesAt];
      constexpr int kTo = kBits - 1;
      word |= (i >= kTo ? ones >> (i - kTo) : ones << (kTo - i)) & (0x01010101u << kTo);
    }
    group.words[i] = word;
  }
  return group;
}

// A table of 16 values, four to a word.
struct Lookup {
  uint32_t words[4];
};
static_assert(offsetof(Matrix, table) % 4 == 0);
BATON_INLINE Lookup lookup_of(const Matrix& matrix) {
  Lookup lookup;
#ifdef __CUDA_ARCH__
  for (int i = 0; i < 4; ++i) lookup.words[i] = reinterpret_cast<const uint32_t*>(matrix.table)[i];
#else
  std::memcpy(lookup.words, matrix.table, sizeof(lookup.words));
#endif
  return lookup;
}

// q of a matrix with a table.
template <int kBits>
BATON_INLINE Group<kBits> look_up(const Raw<kBits>& raw, const Lookup& table) {
  static_assert(kBits <= 4);
  if constexpr (kBits < 4) {
    Group<kBits> group = take_apart(raw);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = 0; i < 8; ++i) {
      const uint32_t codes = group.words[i] | group.words[i] >> 4;  // of half a byte, in bytes 0 and 2
      group.words[i] = permute(table.words[0], table.words[1], permute(codes, codes, 0x0020));
    }
    return group;
  } else {
    Group<kBits> group;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = 0; i < 4; ++i) {
      uint32_t places = raw.words[i] & 0x77777777u;                       // in either half of the table
      uint32_t halves = (raw.words[i] >> 1 & 0x44444444u) | 0x32103210u;  // byte j of the first or of the second
      uint32_t found[2];
      for (int j = 0; j < 2; ++j, places >>= 16, halves >>= 16) {
        found[j] = permute(permute(table.words[0], table.words[1], places),
                           permute(table.words[2], table.words[3], places), halves);
      }
      group.words[i] = permute(found[0], found[1], 0x6420);
      group.words[4 + i] = permute(found[0], found[1], 0x7531);
    }
    return group;
  }
}

}  // namespace baton::cuda
