// Kernels that find out what a card can do (kernels/limits.cu): what they are given, how much they do, and what must
// come out where they did all of it. The same numbers for kernels and for who launches them (card_limits.h).
#pragma once

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// Reads and copies: a block takes chunks of so many vectors of 16 bytes, each thread kLimitLoads of them at a time.
inline constexpr uint32_t kLimitThreads = 512, kLimitLoads = 8;
inline constexpr uint64_t kLimitChunk = uint64_t{kLimitThreads} * kLimitLoads;

// Products: of a round, a warp makes kLimitMmas products of 16 by 8 over 16; where the card has them, each of
// the two groups of four warps kLimitWgmmas of 64 by 256 over 16 instead.
inline constexpr uint32_t kLimitProductThreads = 256, kLimitMmas = 16, kLimitWgmmas = 4;
inline constexpr uint32_t kLimitProductShared = (2 * 64 + 256) * 128 + 1024;
enum class LimitPath : uint32_t { kMma = 1, kWgmma = 2 };

// f32: multiply-adds of a thread in a round.
inline constexpr uint32_t kLimitSums = 16;

struct LimitWork {
  Address from = 0, to = 0;  // vectors
  Address sums = 0;          // by block and warp: uint32_t of reads, float of arithmetic
  Address path = 0;          // of products: LimitPath, by the card
  uint64_t vectors = 0;      // of `from`, a multiple of kLimitChunk times the number of blocks
  uint32_t rounds = 0;
  float one = 1;  // factors that no compiler knows
};

// What is read: vector i is {i, i + 1, ~i, i}, and all words by exclusive or are the number of vectors, where that is
// a multiple of four.
BATON_BOTH constexpr uint32_t turned_left(uint32_t x) { return x << 1 | x >> 31; }
// All sums of a read by exclusive or: those of a round are turned by a bit in each later one.
constexpr uint32_t expected_read(uint64_t vectors, uint32_t rounds) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < rounds; ++i) sum = turned_left(sum) ^ static_cast<uint32_t>(vectors);
  return sum;
}

// Values of products: bf16 of 0.5 to 0.996 that differ by row and by place within 8. Their bits.
BATON_BOTH constexpr uint32_t limit_value(uint32_t row, uint32_t place) {
  return 0x3f00u | ((row * 0x9e3779b1u + place * 0x85ebca6bu) >> 13 & 0x7fu);
}
BATON_BOTH constexpr float limit_number(uint32_t row, uint32_t place) {
  return static_cast<float>(limit_value(row, place) - 0x3f00u) / 256.0f + 0.5f;
}

}  // namespace baton::cuda
