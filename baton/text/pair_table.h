// Merges by the two symbols that they join: an open-addressing table.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "baton/text/hash.h"

namespace baton {

class PairTable {
 public:
  struct Pair {
    uint64_t key;  // left << 32 | right; kNoKey: empty
    uint32_t rank;
    int32_t result;
  };

  explicit PairTable(size_t pairs_max = 0)
      : pairs_(std::bit_ceil(std::max<size_t>(16, pairs_max * 2)), Pair{kNoKey, 0, -1}), seed_(table_seed()) {}

  // Of two equal pairs the first stays: ranks are added in order.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t result) {
    Pair& pair = pairs_[place_of(key_of(left, right))];
    if (pair.key == kNoKey) pair = {key_of(left, right), rank, result};
  }
  const Pair* find(int32_t left, int32_t right) const {
    const Pair& pair = pairs_[place_of(key_of(left, right))];
    return pair.key == kNoKey ? nullptr : &pair;
  }

 private:
  static constexpr uint64_t kNoKey = ~uint64_t{0};
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t place_of(uint64_t key) const {
    const size_t mask = pairs_.size() - 1;
    size_t i = mix_bits(key ^ seed_) & mask;
    while (pairs_[i].key != key && pairs_[i].key != kNoKey) i = (i + 1) & mask;
    return i;
  }

  std::vector<Pair> pairs_;
  uint64_t seed_ = 0;
};

}  // namespace baton
