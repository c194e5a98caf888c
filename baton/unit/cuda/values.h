// Functions of one value that kernels use, as plain arithmetic: tests run them on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

BATON_BOTH inline float gelu_of(float x, Gelu kind) {
  if (kind == Gelu::kErf) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}
BATON_BOTH inline float soft_cap_of(float x, float cap) { return cap * tanhf(x / cap); }
BATON_BOTH inline float position_scale_of(int64_t position, float scale, int64_t tokens) {
  return 1.0f + scale * logf(1.0f + static_cast<float>(position / tokens));
}

// Of pair i, without factors. Angles of late positions are as wrong as this times the position: in f64, and rounded.
BATON_BOTH inline float rope_frequency(float theta, int32_t i, int32_t rotary) {
  const float exponent = -2.0f * static_cast<float>(i) / static_cast<float>(rotary);
  return static_cast<float>(pow(static_cast<double>(theta), static_cast<double>(exponent)));
}

// The key of the larger value is larger, of equals that of the lower id; of what is not finite it is above all others.
BATON_BOTH inline uint64_t draw_key(float x, uint32_t id) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7f800000u) == 0x7f800000u) return ~uint64_t{0};
  if (x == 0) bits = 0;  // both zeros are one
  const uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(order) << 32 | static_cast<uint32_t>(~id);
}
// -1 when one value is not finite, or there is none (0).
BATON_BOTH inline int32_t id_of_draw(uint64_t key) {
  return key == 0 || key == ~uint64_t{0} ? -1 : static_cast<int32_t>(~static_cast<uint32_t>(key));
}
BATON_BOTH inline float value_of_draw(uint64_t key) {
  const auto order = static_cast<uint32_t>(key >> 32);
  const uint32_t bits = (order & 0x80000000u) != 0 ? order ^ 0x80000000u : ~order;
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// What kDraw draws among. Ids, by fours, are dealt to kThreads threads. Of the threads' largest keys the top_k-th, or
// the kDrawTopMax-th, is the least that a candidate has: all that are likelier than a candidate are candidates, and
// there are as many of them as that, if so many threads have any. More than kDrawAmong are too many to decide.
inline constexpr int32_t kDrawAmong = 1024;
inline constexpr int32_t kUndecided = -2;  // the next token is not known to be among the candidates

// No id that is less likely than one of this weight has a weight of `least` or more: weights are exact to a 2^28th.
BATON_BOTH inline bool is_below(uint64_t weight, uint64_t least) { return weight + (weight >> 20) + 2 < least; }
BATON_BOTH inline bool is_banned(const uint32_t* banned, int32_t id) {
  return banned != nullptr && (banned[id / 32] >> (id % 32) & 1) != 0;
}

}  // namespace baton::cuda
