// A small seeded generator with the same numbers on every platform (splitmix64). Not for secrets.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace baton {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound); bound > 0. The bias is below 2^-32 for the bounds used here.
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  // Uniform in [0, 1), 24 bits.
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  // Box-Muller, one of the pair.
  float normal() {
    const float radius = std::sqrt(-2.0f * std::log(1.0f - uniform()));
    return radius * std::cos(2.0f * std::numbers::pi_v<float> * uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace baton
