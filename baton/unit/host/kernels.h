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

#include "baton/base/simd/arithmetic.h"
#include "baton/unit/host/mixing.h"
#include "baton/unit/host/multiply.h"

namespace baton::host {

struct Kernels {
  const char* name;         // "avx512"
  const char* description;  // "avx512-vnni": what placement() reports
  ProductArithmetic arithmetic;
  MultiplyFunction matmul[kPackings];
  // Sizes of the register tiles: how many panels a piece of work should hold at least.
  int panels_per_tile;
  int64_t direct_tokens;  // up to here a product needs no sorted low planes
  int64_t ahead_from;     // products of so many tokens fetch their weights ahead; of fewer the processor does it better

  // Products in bf16 of tokens that prefill, for the processors that have them; null where there are none. For columns
  // that are multiples of 32, and any number of tokens: what else is in a pass does not show in a row's bits. Integer
  // packings have them all or none.
  MultiplyFunction tile_matmul[kPackings];
  bool tile_pairs;  // of float packings they multiply Form::kTilePairs, else Form::kTiles
  // One row of `n` values into its lines of the tiles; `low` may be null. Null: no tiles.
  void (*to_tiles)(const float* x, int64_t n, uint16_t* high, uint16_t* low);

  // `n` a multiple of 32. An infinite or NaN value makes its block's scale NaN: it shows in the result.
  // `precise`: every block keeps its low plane. Returns how many do; `lows` has room for n / 32.
  int64_t (*quantize)(const float* x, int64_t n, bool precise, ActivationBlock* blocks, LowPlane* lows);
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* out);
  void (*layer_norm)(const float* x, const float* w, const float* b, float eps, int64_t n, float* out);
  void (*gated_norm)(const float* x, const float* w, const float* gate, float eps, int64_t n, float* out);
  void (*swiglu)(const float* x, const float* y, int64_t n, float* out);
  void (*sigmoid_gate)(const float* x, const float* y, int64_t n, float* out);
  void (*gelu)(const float* x, bool by_tanh, int64_t n, float* out);
  void (*geglu)(const float* x, const float* y, bool by_tanh, int64_t n, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*soft_cap)(float cap, int64_t n, float* x);  // x = cap tanh(x / cap)
  void (*add)(const float* x, const float* y, int64_t n, float* out);
  void (*multiply)(const float* x, const float* y, int64_t n, float* out);
  // out += factor * x, the product rounded before the sum.
  void (*add_scaled)(const float* x, float factor, int64_t n, float* out);
  // out[c] = silu(sum_j w[j * w_stride + c] * rows[j][c])
  void (*conv)(const float* const* rows, int taps, const float* w, int64_t w_stride, int64_t n, float* out);
  // out[c] = z[c] sum_j w[j * w_stride + c] * rows[j][c]
  void (*short_conv)(const float* const* rows, int taps, const float* w, int64_t w_stride, const float* z, int64_t n,
                     float* out);
  // Turns pairs of one head: (i, i + half), or (2i, 2i + 1) when adjacent. `out` may be `x`.
  void (*rope)(const float* x, const float* cosine, const float* sine, int64_t half, bool adjacent, float* out);
  void (*to_f16)(const float* x, int64_t n, uint16_t* out);
  void (*product)(const Product& p, Store store);
  void (*attend_decode)(const AttendDecode& a);
  void (*attend_prefill)(const AttendPrefill& a);
  void (*attend_all)(const AttendAll& a);
  void (*delta_recurrent)(const DeltaHead& h);  // token by token
  // Chunks of 64 in the WY form, a rest of up to kRecurrentTokens token by token: cut at a multiple of 64, the pieces
  // give the same bits as the whole.
  void (*delta_chunked)(const DeltaHead& h);
};

}  // namespace baton::host
