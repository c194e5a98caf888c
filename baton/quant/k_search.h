// The scale searches of the K formats' quantisers (ggml's reference, no importance matrix). Sums run in f32 in element
// order, so that the codes are the same bytes everywhere; compile without contraction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

constexpr size_t kSuperBlock = 256;

// Round half to even for |value| <= 2^22; any other value gives some number, never undefined behaviour.
int nearest_int(float value);

// Symmetric: codes in [0, 2 * code_max), value ~ scale * (code - code_max). Returns the scale.
float search_symmetric(std::span<const float> x, int code_max, uint8_t* codes);

// Asymmetric: codes in [0, code_max], value ~ scale * code - minus_min. Candidates start at `start`, `steps` + 1 of
// them, 0.1 apart; the smallest weighted squared error wins.
float search_asymmetric(std::span<const float> x, int code_max, float start, int steps, uint8_t* codes,
                        float* minus_min);

// The eight 6-bit (scale, min) pairs of Q4_K and Q5_K in 12 bytes.
inline void unpack_pair(const std::byte* packed, size_t j, uint8_t* scale, uint8_t* min) {
  const auto at = [&](size_t i) { return static_cast<unsigned>(packed[i]); };
  if (j < 4) {
    *scale = static_cast<uint8_t>(at(j) & 63);
    *min = static_cast<uint8_t>(at(j + 4) & 63);
  } else {
    *scale = static_cast<uint8_t>((at(j + 4) & 15) | (at(j - 4) >> 6) << 4);
    *min = static_cast<uint8_t>(at(j + 4) >> 4 | (at(j) >> 6) << 4);
  }
}

// Q4_K and Q5_K share everything but the code's width: searches eight sub-blocks of 32, writes f16 d, f16 dmin and the
// packed pairs to `header` (16 bytes) and the final codes, each in [0, code_max].
void quantize_pairs(const float* x, int code_max, float start, int steps, std::byte* header, uint8_t* codes);

}  // namespace baton
