// The kernels of the host processor, for the cpu unit and for what other units leave to the host: one table of
// functions per instruction set, all with the same meaning. The sets are written once over 16 lanes (kernels_*.inl.h);
// a set's own file gives the lanes and nothing else.
//
// Weights are packed at load (packing.h) into panels of 16 rows; a row of a panel is a lane, so every output element is
// summed over k in the same order whatever the number of tokens or threads.
// Nothing here allocates, throws or synchronises. Pointers need no alignment unless said.
//
// Files compiled for a set include this header: its functions are static, or the linker could keep a set's copy for all
// (scripts/check_symbols.py).
#pragma once

#include <cstddef>
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

// The right-hand side of a product: `columns` values per token.
struct Activations {
  const float* x = nullptr;  // float packings: tokens x_stride floats apart
  int64_t x_stride = 0;
  // Integer packings, columns a multiple of 32: [tokens][columns / 32], and at most as many low planes.
  const ActivationBlock* blocks = nullptr;
  const LowPlane* lows = nullptr;
  // For more than Kernels::direct_tokens tokens, those of kSortedTokens tokens at a time sorted by block: of block b of
  // batch i, those from starts[i * (columns / 32 + 1) + b] up to the next start; `at` counts from the batch's first.
  const int32_t* sorted_starts = nullptr;
  const LowPlane* sorted_lows = nullptr;
  // Tile products: bf16 [tokens / 16, rounded up][columns / 32][16 tokens][32]; what rounding left, for 16-bit weights.
  const uint16_t* high_tiles = nullptr;
  const uint16_t* low_tiles = nullptr;
};
inline constexpr int64_t kTileTokens = 16;
inline constexpr int64_t kSortedTokens = 144;  // a multiple of what any register tile takes

// out[t, r] = (add ? out[t, r] : 0) + sum_k W[r, k] x[t, k] for the rows of panels [panel_begin, panel_end).
// `scratch`: per thread, scratch_bytes(columns) bytes, 64-byte aligned.
using MatmulFunction = void (*)(const Matrix& w, int64_t panel_begin, int64_t panel_end, const Activations& a,
                                int64_t tokens, float* out, int64_t out_stride, bool add, unsigned char* scratch);

// What to do with the previous content of C.
enum class Store { kSet, kAdd, kSubtract };

// C[m, n] (set, += or -=) sum_k A[m * a_m + k * a_k] * B[k * b_stride + n], all f32.
struct Product {
  int64_t m, n, k;
  const float* a;
  int64_t a_m, a_k;
  const float* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
};

// Attention of `groups` query heads that share one kv head over tokens [0, tokens) of that head.
struct AttendDecode {
  const float* q;  // [groups, head_dim], rows q_stride apart
  int64_t q_stride;
  const uint16_t* keys;    // f16 [tokens, head_dim]
  const uint16_t* values;  // f16 [tokens, head_dim]
  int64_t tokens;
  int64_t head_dim;
  int groups;
  float scale;
  float* out;      // [groups, head_dim], rows head_dim apart: sum of exp(s - highest) v, not yet divided
  float* highest;  // [groups]
  float* sum;      // [groups]
};

// Causal attention of `queries` consecutive tokens, the first at position `start`, all heads of one kv head.
struct AttendPrefill {
  const float* q;  // [queries][groups, head_dim]: token stride q_stride, head stride head_dim
  int64_t q_stride;
  const uint16_t* keys;  // f16 [start + queries, head_dim]
  const uint16_t* values;
  int64_t start, queries;
  int64_t head_dim;
  int groups;
  float scale;
  float* out;  // as q, token stride out_stride; may be q
  int64_t out_stride;
  float* scratch;  // attend_scratch_floats(queries * groups, head_dim), 64-byte aligned
};

// The gated delta rule of one value head over consecutive tokens. q and k are not yet normalised.
struct DeltaHead {
  const float* q;  // [tokens][key_dim], stride x_stride; likewise k, v
  const float* k;
  const float* v;
  int64_t x_stride;
  const float* log_decay;  // g <= 0; stride gate_stride
  const float* beta;
  int64_t gate_stride;
  int64_t tokens;
  int64_t key_dim, value_dim;
  float eps;
  float* state;  // [key_dim, value_dim]
  float* out;    // [tokens][value_dim], stride out_stride
  int64_t out_stride;
  float* scratch;  // delta_scratch_floats(key_dim, value_dim), 64-byte aligned
};

struct Kernels {
  const char* name;         // "avx512"
  const char* description;  // "avx512-vnni": what placement() reports
  MatmulFunction matmul[kPackings];
  // Sizes of the register tiles: how many panels a piece of work should hold at least.
  int panels_per_tile;
  int64_t direct_tokens;  // up to here a product needs no sorted low planes

  // Products of many tokens in bf16, for the processors that have them; null where there are none. From
  // `tile_tokens_min` tokens on and for columns that are multiples of 32; needs Activations::high_tiles.
  MatmulFunction tile_matmul[kPackings];
  int64_t tile_tokens_min;  // 0: no tiles
  // Integer packings have tiles all or none.
  constexpr bool integer_tiles() const { return tile_matmul[static_cast<int>(Packing::kQ8_0)] != nullptr; }
  // One row of `n` values into its lines of the tiles; `low` may be null.
  void (*to_tiles)(const float* x, int64_t n, uint16_t* high, uint16_t* low);

  // `n` a multiple of 32. An infinite or NaN value makes its block's scale NaN: it shows in the result.
  // `precise`: every block keeps its low plane. Returns how many do; `lows` has room for n / 32.
  int64_t (*quantize)(const float* x, int64_t n, bool precise, ActivationBlock* blocks, LowPlane* lows);
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* out);
  void (*gated_norm)(const float* x, const float* w, const float* gate, float eps, int64_t n, float* out);
  void (*swiglu)(const float* x, const float* y, int64_t n, float* out);
  void (*sigmoid_gate)(const float* x, const float* y, int64_t n, float* out);
  void (*add)(const float* x, const float* y, int64_t n, float* out);
  // out[c] = silu(sum_j w[j * w_stride + c] * rows[j][c])
  void (*conv)(const float* const* rows, int taps, const float* w, int64_t w_stride, int64_t n, float* out);
  // Turns pairs of one head: (i, i + half), or (2i, 2i + 1) when adjacent. `out` may be `x`.
  void (*rope)(const float* x, const float* cosine, const float* sine, int64_t half, bool adjacent, float* out);
  void (*to_f16)(const float* x, int64_t n, uint16_t* out);
  void (*product)(const Product& p, Store store);
  void (*attend_decode)(const AttendDecode& a);
  void (*attend_prefill)(const AttendPrefill& a);
  void (*delta_recurrent)(const DeltaHead& h);  // token by token
  // Chunks of 64 in the WY form, a rest of up to kRecurrentTokens token by token: cut at a multiple of 64, the pieces
  // give the same bits as the whole.
  void (*delta_chunked)(const DeltaHead& h);
};

inline constexpr int64_t kDeltaChunk = 64;
inline constexpr int64_t kRecurrentTokens = 8;  // up to here the recurrence is quicker than a chunk
inline constexpr int64_t kAttendKeys = 64;      // keys per tile
inline constexpr int64_t kPanelsUnpacked = 2;

// Unpacked panels: int8 values with f32 scale and minimum per 16 (the most any packing needs), or f32 values. Sums of
// low planes.
static constexpr int64_t matmul_scratch_bytes(int64_t columns) {
  return kPanelsUnpacked * kLanes * (columns * 4 + 64 + kSortedTokens * 4);
}
static constexpr int64_t attend_scratch_floats(int64_t rows, int64_t head_dim) {
  const int64_t padded = round_up(rows, kLanes), wide = round_up(head_dim, kLanes);
  return padded * (2 * wide + kAttendKeys + 3) + 2 * kAttendKeys * wide + 2 * kLanes;
}
static constexpr int64_t delta_scratch_floats(int64_t key_dim, int64_t value_dim) {
  const int64_t dk = round_up(key_dim, kLanes), dv = round_up(value_dim, kLanes);
  return kDeltaChunk * (4 * dk + (dk + dv) + 3 * kDeltaChunk + 8) + 4 * (dk + dv);
}

}  // namespace baton::host
