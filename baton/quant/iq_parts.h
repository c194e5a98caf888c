// What the codebook formats share: groups of codes spread over bytes, and signs of 7 bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace baton {

// Byte i: bits 2i, 2i + 1 of 16.
inline uint64_t pairs_to_bytes(uint64_t bits) {
  bits = (bits | bits << 24) & 0x000000ff000000ffu;
  bits = (bits | bits << 12) & 0x000f000f000f000fu;
  return (bits | bits << 6) & 0x0303030303030303u;
}

// Byte i: bit i of 8.
inline uint64_t bits_to_bytes(uint64_t bits) {
  bits = (bits | bits << 28) & 0x0000000f0000000fu;
  bits = (bits | bits << 14) & 0x0003000300030003u;
  return (bits | bits << 7) & 0x0101010101010101u;
}

// Byte i: bits 4i .. 4i + 3 of 32.
inline uint64_t nibbles_to_bytes(uint64_t bits) {
  bits = (bits | bits << 16) & 0x0000ffff0000ffffu;
  bits = (bits | bits << 8) & 0x00ff00ff00ff00ffu;
  return (bits | bits << 4) & 0x0f0f0f0f0f0f0f0fu;
}

// The eighth sign makes the number of negative ones even.
inline uint32_t eight_signs(uint32_t seven) { return seven | (std::popcount(seven) & 1u) << 7; }

inline std::byte* as_bytes_of(uint8_t* codes) { return reinterpret_cast<std::byte*>(codes); }

}  // namespace baton
