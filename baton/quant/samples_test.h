// Inputs of the quantisers' tests: plain arithmetic on seeded numbers, the same bits on every platform.
#pragma once

#include <cstddef>
#include <vector>

#include "baton/base/random.h"

namespace baton {

// `count` values in groups of 256 of changing character: even, positive, sparse, heavy-tailed, half zero, offset, tiny,
// with a few all-zero and constant groups.
inline std::vector<float> sample_values(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t group = i / 256;
    const float even = random.uniform(-1.0f, 1.0f);
    const float rare = random.uniform();
    switch (group % 8) {
      case 0:
        values[i] = even;
        break;
      case 1:
        values[i] = even < 0 ? -even : even;
        break;
      case 2:
        values[i] = rare < 0.1f ? even : 0.0f;
        break;
      case 3:
        values[i] = even * even * even * even * even * 40.0f;
        break;
      case 4:
        values[i] = i % 256 < 128 ? even : 0.0f;
        break;
      case 5:
        values[i] = 3.0f + even;
        break;
      case 6:
        values[i] = even * 0x1p-18f;
        break;
      default:
        values[i] = group % 32 == 7 ? 0.0f : group % 32 == 15 ? -0.75f : even * (rare + 0.01f);
    }
  }
  return values;
}

}  // namespace baton
