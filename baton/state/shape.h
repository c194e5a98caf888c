// What a sequence's state consists of on one unit: one Segment per slot of the Program, each a dense array in canonical
// order. Where a unit keeps it is its own affair (pages, rings, another machine): outside it exists as rows that are
// read and written in this order (unit/sequence_state.h), and as sections of a sealed state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/program.h"
#include "baton/quant/format.h"
#include "baton/state/rows.h"

namespace baton {

// Canonical dims of a slot, outermost first; the tokens dim counts tokens held.
//   kKeys, kValues  [kv_heads, tokens, head_dim]
//   kConv           [1, columns, channels]
//   kRecurrent      [value_heads, key_dim, value_dim]
using Dims = std::array<uint64_t, 3>;

struct Segment {
  SlotKind kind = SlotKind::kKeys;
  int32_t layer = 0;
  DType dtype = DType::kF32;  // kF32, kF16, kBF16; of keys and values also kQ8_0, kQ4_0 (rows.h)
  Dims dims{};                // tokens dim: 0

  friend bool operator==(const Segment&, const Segment&) = default;
};

struct StateShape {
  std::vector<Segment> segments;  // one per Program slot, in slot order

  friend bool operator==(const StateShape&, const StateShape&) = default;
};

// `kv_type` for keys and values; convolution and recurrent state are always f32.
StateShape state_shape(const Program& program, DType kv_type);

// Whether dim 1 counts tokens.
inline bool has_tokens_dim(SlotKind kind) { return kind == SlotKind::kKeys || kind == SlotKind::kValues; }

// Dims of `segment` when the state holds `tokens` tokens.
Dims dims_at(const Segment& segment, uint64_t tokens);

// Bytes of one value of a type without blocks: 4 for kF32, 2 for kF16 and kBF16, 0 for others.
uint64_t value_bytes(DType dtype);

// Bytes of a dense array. False when the product does not fit or the type is not one of a state.
[[nodiscard]] bool dense_bytes(const Dims& dims, DType dtype, uint64_t* out);

// Bytes of all values of a state with `tokens` tokens, and their growth per token. Saturates.
uint64_t section_bytes(const StateShape& shape, uint64_t tokens);
uint64_t bytes_per_token(const StateShape& shape);

// Types a state can hold, and dims that are not zero but for the tokens dim. kInternal, naming the segment: a shape
// comes from a unit, never from input.
Status check_shape(const StateShape& shape);

// "layer 3 keys": how messages and listings call a segment.
std::string segment_name(SlotKind kind, int32_t layer);

// One line per segment, for `inspect`.
std::string to_text(const StateShape& shape);

}  // namespace baton
