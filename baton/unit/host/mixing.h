// What the kernels of attention, of the delta rule and of float products get. Files of instruction sets include this:
// its functions are static.
#pragma once

#include <cstdint>

#include "baton/unit/host/packing.h"

namespace baton::host {

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

inline constexpr int64_t kAttendKeys = 64;           // keys per tile
inline constexpr int64_t kPageTokens = kAttendKeys;  // of a page of keys and values: a multiple, so that a tile has one

// How a row of keys or values lies in memory: state/rows.h. What is rotated there is rotated here, and so are the
// queries; a head_dim is then a multiple of 32.
enum class KeyForm : uint8_t { kF16, kBF16, kQ8_0, kQ4_0 };

// Keys and values of one kv head in pages: kPageTokens rows each, so many bytes from the page's beginning.
struct KeyPages {
  const unsigned char* const* pages;
  uint64_t keys_at, values_at;
  int64_t head_dim;
  KeyForm form = KeyForm::kF16;
};
static constexpr int64_t key_row_bytes(KeyForm form, int64_t head_dim) {
  if (form == KeyForm::kF16 || form == KeyForm::kBF16) return 2 * head_dim;
  return (head_dim + 31) / 32 * (form == KeyForm::kQ8_0 ? 34 : 18);
}
static inline const unsigned char* page_row(const KeyPages& from, uint64_t at, int64_t token) {
  return from.pages[token / kPageTokens] + at + token % kPageTokens * key_row_bytes(from.form, from.head_dim);
}

// Attention of `groups` query heads that share one kv head over tokens [first, first + tokens) of that head.
struct AttendDecode {
  const float* q;  // [groups, keys.head_dim], rows q_stride apart
  int64_t q_stride;
  KeyPages keys;
  int64_t first, tokens;  // `first` a multiple of kAttendKeys
  int64_t seen_from;      // keys before this one are hidden; in the first tile
  int groups;
  float scale, cap;  // cap: of scores, 0 for none
  float* out;        // [groups, keys.head_dim], rows head_dim apart: sum of exp(s - highest) v, not yet divided
  float* highest;    // [groups]
  float* sum;        // [groups]
};

// Causal attention of `queries` consecutive tokens, the first at position `start`, all heads of one kv head.
struct AttendPrefill {
  const float* q;  // [queries][groups, head_dim]: token stride q_stride, head stride head_dim
  int64_t q_stride;
  KeyPages keys;
  int64_t start, queries;
  int64_t window;  // tokens that a query sees, its own included; 0: all
  int64_t chunk;   // a query sees no further back than the last multiple of it; 0: all
  int groups;
  float scale, cap;
  float* out;  // as q, token stride out_stride; may be q
  int64_t out_stride;
  float* scratch;  // attend_scratch_floats(queries * groups, head_dim), 64-byte aligned
};

// The same over f32 keys and values of `tokens` tokens, earlier and later ones.
struct AttendAll {
  const float* q;  // as AttendPrefill's
  int64_t q_stride;
  const float* keys;  // [tokens, head_dim], rows keys_stride apart
  int64_t keys_stride;
  const float* values;
  int64_t values_stride;
  int64_t head_dim;
  int64_t tokens, start, queries;
  int64_t window;  // a query sees so many tokens to each side; 0: all
  int groups;
  float scale;
  const float* slopes;  // [groups]: what each step of distance takes from a score; null: nothing
  float* out;           // not q
  int64_t out_stride;
  float* scratch;  // as AttendPrefill's
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

inline constexpr int64_t kDeltaChunk = 64;
inline constexpr int64_t kRecurrentTokens = 8;  // up to here the recurrence is quicker than a chunk

static constexpr int64_t attend_scratch_floats(int64_t rows, int64_t head_dim) {
  const int64_t padded = round_up(rows, kLanes), wide = round_up(head_dim, kLanes);
  return padded * (2 * wide + kAttendKeys + 3) + 2 * kAttendKeys * wide + 2 * kLanes;
}
static constexpr int64_t delta_scratch_floats(int64_t key_dim, int64_t value_dim) {
  const int64_t dk = round_up(key_dim, kLanes), dv = round_up(value_dim, kLanes);
  return kDeltaChunk * (4 * dk + (dk + dv) + 3 * kDeltaChunk + 8) + 4 * (dk + dv);
}

}  // namespace baton::host
