// Inputs of the quantisers' tests: plain arithmetic on seeded numbers, the same bits on every platform.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/quant/format.h"

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

// The scales of a block that holds them in another way than as one number.
inline bool put_odd_scales(const Format& format, Random& random, float size, std::byte* block) {
  const auto put_f32 = [&](size_t at, float value) { std::memcpy(block + at, &value, sizeof(value)); };
  switch (format.dtype) {
    case DType::kIQ1_M: {  // a quarter of the scale in each of four words
      const uint16_t bits = f32_to_f16(size * random.uniform(-1, 1) / 256);
      for (int i = 0; i < 4; ++i) {
        std::byte& high = block[49 + 2 * i];
        high = (high & std::byte{15}) | static_cast<std::byte>((bits >> (4 * i) & 15) << 4);
      }
      return true;
    }
    case DType::kNVFP4:
      for (int i = 0; i < 4; ++i) {
        const int e = 5 + static_cast<int>(std::log2(size)) + static_cast<int>(random.below(5));
        block[i] = static_cast<std::byte>(std::clamp(e, 0, 14) << 3 | static_cast<int>(random.below(8)));
      }
      return true;
    case DType::kNVFP4_F32:
      put_f32(0, size * random.uniform(-1, 1) / 64);
      return true;
    case DType::kF8_G32:
      put_f32(0, size * random.uniform(-1, 1) / 64);
      for (uint32_t i = 4; i < format.block_bytes; ++i) {
        if ((block[i] & std::byte{0x7f}) == std::byte{0x7f}) block[i] = std::byte{1};  // no number
      }
      return true;
    default:
      return false;
  }
}

// `blocks` blocks of any codes, with scales of either sign that keep values within about +-1000 times `size`: for
// formats that hold scales, whether this project writes them or not.
inline std::vector<std::byte> random_blocks(const Format& format, size_t blocks, Random& random, float size = 1) {
  std::vector<std::byte> bytes(blocks * format.block_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  for (size_t b = 0; b < blocks; ++b) {
    std::byte* block = bytes.data() + b * format.block_bytes;
    const auto put_f16 = [&](size_t at) {
      const uint16_t bits = f32_to_f16(size * random.uniform(-1, 1) / (format.block_elements == 256 ? 256.0f : 8.0f));
      std::memcpy(block + at, &bits, sizeof(bits));
    };
    const auto put_f32 = [&](size_t at, float value) { std::memcpy(block + at, &value, sizeof(value)); };
    if (put_odd_scales(format, random, size, block)) continue;
    switch (format.dtype) {
      case DType::kF32:
        put_f32(0, size * random.uniform(-1, 1));
        break;
      case DType::kBF16:
        break;  // callers take care of NaN
      case DType::kQ4_1:
      case DType::kQ5_1:
      case DType::kQ4_K:
      case DType::kQ5_K:
        put_f16(2);
        put_f16(0);
        break;
      case DType::kQ6_K:
        put_f16(208);
        break;
      case DType::kQ2_K:
        put_f16(80);
        put_f16(82);
        break;
      case DType::kQ3_K:
        put_f16(108);
        break;
      case DType::kTQ2_0:
        put_f16(64);
        break;
      case DType::kTQ1_0:
        put_f16(52);
        break;
      case DType::kMXFP4:
        block[0] = static_cast<std::byte>(118 + static_cast<int>(std::log2(size)) + static_cast<int>(random.below(16)));
        break;
      default:
        if (format.ggml_id == kNoGgmlId) {
          const float scale = size * random.uniform(-1, 1) / 8;
          put_f32(0, scale);
          put_f32(4, -scale * random.uniform(0, 256));
        } else {
          put_f16(0);
        }
    }
  }
  return bytes;
}

// `values` in the format; where this project cannot write it, random blocks of the same root mean square.
inline std::vector<std::byte> blocks_like(const Format& format, std::span<const float> values, Random& random) {
  const size_t blocks = values.size() / format.block_elements;
  if (format.encode != nullptr) {
    std::vector<std::byte> bytes(blocks * format.block_bytes);
    format.encode(values.data(), bytes.data(), values.size());
    return bytes;
  }
  const auto energy = [](std::span<const float> of) {
    double sum = 1e-30;
    for (const float value : of) sum += static_cast<double>(value) * value;
    return sum;
  };
  Random probe = random;
  std::vector<float> decoded(values.size());
  format.decode(random_blocks(format, blocks, probe).data(), decoded.data(), decoded.size());
  return random_blocks(format, blocks, random, static_cast<float>(std::sqrt(energy(values) / energy(decoded))));
}

}  // namespace baton
