// A product of a packed matrix: the forms of its right-hand side, and what a kernel gets. Files of instruction sets
// include this: its functions are static.
#pragma once

#include <cstdint>

#include "baton/unit/host/packing.h"

namespace baton::host {

// 32 activations as int8: value = scale * (high + low / 128). Most blocks have no low plane. One that stands out of its
// row has, and keeps 15 bits: with one plane everywhere, what 8-bit formats usually get, such blocks moved the logits
// of a 135M model by more than 1 and changed its answer. Whether a block has one depends on its row alone. Sums are of
// the first 16, the second 16, and all.
struct alignas(64) ActivationBlock {
  int8_t high[kBlock];
  float scale;
  float scaled_sum[3];   // of the values: what a minimum per block multiplies
  int32_t high_bias[3];  // -128 * the sums of `high`: makes up for weights stored as q + 128
  int32_t low;           // which low plane of its row; -1: none
};
static_assert(sizeof(ActivationBlock) == 64);

struct alignas(64) LowPlane {
  int8_t low[kBlock];  // -64 .. 63
  int32_t bias[3];     // as high_bias
  float scale;         // of the block, / 128
  int32_t at;          // in a row's planes: the block; among planes sorted by block: the token
};
static_assert(sizeof(LowPlane) == 64);

// What matrices multiply. operands.h has which of them when.
enum class Form : uint8_t {
  kFloats,
  kIntegers,   // ActivationBlocks and LowPlanes
  kTiles,      // bf16
  kTilePairs,  // bf16, and what that left in bf16
};

// The right-hand side of a product in one of its forms: `columns` values per token.
struct Activations {
  Form form = Form::kFloats;
  const float* x = nullptr;  // tokens x_stride floats apart
  int64_t x_stride = 0;
  // Columns a multiple of 32: [tokens][columns / 32], and at most as many low planes.
  const ActivationBlock* blocks = nullptr;
  const LowPlane* lows = nullptr;
  // For more than Kernels::direct_tokens tokens, those of kSortedTokens tokens at a time sorted by block: of block b of
  // batch i, those from starts[i * (columns / 32 + 1) + b] up to the next start; `at` counts from the batch's first.
  const int32_t* sorted_starts = nullptr;
  const LowPlane* sorted_lows = nullptr;
  // [tokens / 16, rounded up][columns / 32][16 tokens][32]; the second of kTilePairs only.
  const uint16_t* high_tiles = nullptr;
  const uint16_t* low_tiles = nullptr;
};
inline constexpr int64_t kTileTokens = 16;
inline constexpr int64_t kSortedTokens = 144;  // a multiple of what any register tile takes

// out[t, r] = (add ? out[t, r] : 0) + sum_k W[r, k] x[t, k] for the rows of panels [panel_begin, panel_end).
struct Multiply {
  const Matrix* w = nullptr;
  int64_t panel_begin = 0, panel_end = 0;
  Activations x;
  int64_t tokens = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  bool add = false;
  unsigned char* scratch = nullptr;  // per thread, matmul_scratch_bytes(columns) bytes, 64-byte aligned
  bool ahead = true;                 // weights are fetched ahead of their use: see Kernels::ahead_from
};
using MultiplyFunction = void (*)(const Multiply& m);

inline constexpr int64_t kPanelsUnpacked = 2;

// Unpacked panels: int8 values with f32 scale and minimum per 16 (the most any packing needs), or f32 values. Sums of
// low planes.
static constexpr int64_t matmul_scratch_bytes(int64_t columns) {
  return kPanelsUnpacked * kLanes * (columns * 4 + 64 + kSortedTokens * 4);
}

}  // namespace baton::host
