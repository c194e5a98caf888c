// What a logit counts for in a draw: how likely it is beside the largest, as an integer. No sum of these depends on an
// order and nothing on a library's exp(), so that every machine, and a card beside its host, draws the same. Plain
// arithmetic, which kernels include too.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr uint64_t kDrawWeightOne = uint64_t{1} << 40;  // of the largest logit
inline constexpr int32_t kDrawIdsMax = 1 << 23;                // whose weights have a sum

// Of gaps: log2(e) / temperature, times 2^32. No temperature: 1.
constexpr double draw_scale(float temperature) {
  return 1.4426950408889634 * 0x1p32 / static_cast<double>(temperature);
}

// kDrawWeightOne * exp(-gap / temperature), wrong by less than 2^-28 of itself and one. gap: the largest logit less
// this one, 0 or more, perhaps infinite. One product and no sum of floats: there is nothing to contract.
constexpr uint64_t draw_weight(float gap, double scale) {
  const double steps = static_cast<double>(gap) * scale;  // 2^32 of them halve it
  if (!(steps < 0x1p38)) return 0;
  const auto whole = static_cast<uint64_t>(steps);
  const uint64_t part = whole & 0xffffffffu;
  // 2^-part, units of 2^-31, by a polynomial through the Chebyshev nodes that is exact at 0 and 1.
  uint64_t x = 24275;
  x = 319744 - (x * part >> 32);
  x = 2856024 - (x * part >> 32);
  x = 20652244 - (x * part >> 32);
  x = 119193747 - (x * part >> 32);
  x = 515882469 - (x * part >> 32);
  x = 1488522236 - (x * part >> 32);
  x = 2147483648 - (x * part >> 32);
  return x << 9 >> (whole >> 32);
}

// The least weight that a min_p keeps, and the least sum of the likeliest that a top_p below 1 does.
constexpr uint64_t least_weight(float min_p) {
  return static_cast<uint64_t>(static_cast<double>(min_p) * static_cast<double>(kDrawWeightOne));
}
constexpr uint64_t least_sum(float top_p, uint64_t total) {
  return static_cast<uint64_t>(static_cast<double>(top_p) * static_cast<double>(total));
}

}  // namespace baton
