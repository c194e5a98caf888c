// What the encoders of the K, IQ4 and older formats share around the searches of searches.h: ggml's reference
// quantizers, with and without an importance matrix. Sums run in f32 in the order of the values, without contraction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "baton/quant/coding.h"
#include "baton/quant/searches.h"

namespace baton {

constexpr size_t kSuperBlock = 256;
// How quantizers search when weights are given.
constexpr float kWeightedStart = -0.9f, kWeightedDelta = 0.05f;
constexpr int kWeightedSteps = 36;

// Round half to even for |value| <= 2^22; any other value gives some number, never undefined behaviour.
int nearest_int(float value);

// The first-pass codes of a fit, for groups that no later pass writes: in [0, code_max].
void fit_codes(const float* x, size_t n, const AsymmetricFit& fit, int code_max, uint8_t* codes);
// In [0, 2 * code_max).
void fit_codes(const float* x, size_t n, const SymmetricFit& fit, int code_max, uint8_t* codes);

// weights[i] = importance[i] * sqrt(variance + x[i]^2).
void importance_weights(const float* x, const float* importance, size_t count, float variance, float* weights);
float sum_of_squares(const float* x, size_t count);
// Sums of groups of n.
void sum_groups(const float* weights, size_t n, std::span<float> sums);

// Values >= 0 as scale * code, codes in [0, code_max], with the smallest weighted squared error: candidates, then
// refinement code by code. Returns the scale.
float search_positive(std::span<const float> x, const float* weights, int code_max, uint8_t* codes);

// The beginning of a block of Q4_K and Q5_K: f16 d, f16 dmin, then eight 6-bit (scale, min) pairs in 12 bytes.
void unpack_pairs(const std::byte* block, Codes& to);

// 256 codes of 2 bits, of Q2_K and Q3_K: per 128 values 32 bytes, bit pairs 0 to 3 of byte l are values l, l + 32, l +
// 64 and l + 96.
void unpack_twos(const std::byte* from, uint8_t* codes);
void pack_twos(const uint8_t* codes, std::byte* to);  // the lower two bits of each

// Q4_K and Q5_K share everything but the code's width. For each super-block of `count` values: f16 d, f16 dmin and the
// packed pairs (16 bytes) at the block's begin, the rest by `pack` from codes in [0, code_max]. `importance` may be
// null.
struct PairFormat {
  int code_max;
  float start;
  int steps;
  size_t block_bytes;
  void (*pack)(const uint8_t* codes, std::byte* block);
};
void encode_pairs(const PairFormat& format, const float* from, const float* importance, std::byte* to, size_t count);

}  // namespace baton
