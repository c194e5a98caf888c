// Where a unit keeps each part of a sequence's state: one Segment per slot of the Program, as a strided array over the
// canonical dims. The canonical layout (dense, dims in canonical order) is what a sealed state holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/program.h"
#include "baton/quant/format.h"

namespace baton {

// Canonical dims of a slot, outermost first; the tokens dim counts tokens held, not capacity.
//   kKeys, kValues  [kv_heads, tokens, head_dim]
//   kConv           [1, columns, channels]
//   kRecurrent      [value_heads, key_dim, value_dim]
using Dims = std::array<uint64_t, 3>;

struct SegmentLayout {
  SlotKind kind = SlotKind::kKeys;
  int32_t layer = 0;
  DType dtype = DType::kF32;  // kF32, kF16 or kBF16
  Dims dims{};                // tokens dim = capacity
  Dims strides{};             // in elements, per canonical dim
  uint64_t elements = 0;      // of the whole allocation

  friend bool operator==(const SegmentLayout&, const SegmentLayout&) = default;
};

struct Layout {
  std::vector<SegmentLayout> segments;  // one per Program slot, in slot order

  friend bool operator==(const Layout&, const Layout&) = default;
};

// A part of a state, as the bridge sees it: memory of the unit, readable and writable by the host.
struct Segment {
  const SegmentLayout* layout = nullptr;
  std::byte* data = nullptr;
};

// Dense, canonical order. `kv_type` for keys and values; convolution and recurrent state are always f32.
Layout canonical_layout(const Program& program, uint64_t tokens_max, DType kv_type);

// Whether dim 1 counts tokens.
inline bool has_tokens_dim(SlotKind kind) { return kind == SlotKind::kKeys || kind == SlotKind::kValues; }

// Dims of `segment` when the state holds `tokens` tokens.
Dims dims_at(const SegmentLayout& segment, uint64_t tokens);

// Bytes of one value in a state: 4 for kF32, 2 for kF16 and kBF16, 0 for a type that states cannot hold.
uint64_t value_bytes(DType dtype);

// Bytes of a dense array. False when the product does not fit or the type is not one of a state.
[[nodiscard]] bool dense_bytes(const Dims& dims, DType dtype, uint64_t* out);

// Bytes the sealed form of a state with `tokens` tokens holds (sections only), and its growth per token. The layout is
// one that check_layout accepts.
uint64_t section_bytes(const Layout& layout, uint64_t tokens);
uint64_t bytes_per_token(const Layout& layout);

// Types a state can hold, dims that are not zero (the tokens dim may be), every element inside the allocation and no
// two elements in one place. kInternal, naming the segment: a layout comes from a unit, never from input.
Status check_layout(const Layout& layout);

// "layer 3 keys": how messages and listings call a segment.
std::string segment_name(SlotKind kind, int32_t layer);

// One line per segment, for `inspect`.
std::string to_text(const Layout& layout);

// Dims by name from the largest stride to the smallest: "tokens,heads,dim". Dims of one element are left out, except
// tokens: the layout an executor shows has room for one.
std::string storage_order(const SegmentLayout& segment);

}  // namespace baton
