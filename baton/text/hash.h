// A fast 64-bit hash of bytes, the same on every platform. It can be inverted: a table of a file's own words is seeded
// with table_seed(), or whoever writes the file can have all of them in one place of it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace baton {

// The finaliser of splitmix64.
constexpr uint64_t mix_bits(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

// Eight bytes at a time, the length included; chain calls through `seed`.
inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0) {
  uint64_t hash = mix_bits(seed + 0x9e3779b97f4a7c15ull + bytes.size());
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    hash = mix_bits(hash ^ word) + 0x9e3779b97f4a7c15ull;
    bytes.remove_prefix(8);
  }
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) word |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return mix_bits(hash ^ word);
}

// Another number in each process.
uint64_t table_seed();

}  // namespace baton
