// The packings: how a packed matrix holds its values. All follows from the Coding of a stored type (packing_list.inc).
// Files of instruction sets include this: its functions are static.
//
// A panel is 16 rows. F32: f32 [k][16]. F16: f16 [k][16]. BF16: bf16 [k / 2][16][2], columns rounded up to even. F8:
// for each 32 of k f32 d[16] and u8 [32][16]. Of integers it is groups, one after the other, of scales, padded to 64
// bytes, and blocks of 32 codes, 64 bytes for each bit. One stream: with scales apart from values, two threads of Zen 4
// read Q4_K at 83 % of the speed of memory.
//
// Scales of a group, `own` being the case that each block has a d of its own, b a block in the group:
//   own       as many blocks as fill 64 bytes: d[b][16], with minimums d[16], m[16] and one block
//   not own   d[16], with minimums m[16]; with parts s[16 each], with minimums n[16 each], or both in a byte; where
//             there is no d (NVFP4), s alone
// Bytes are those of the stored type, but for small integers of 3 to 6 bits, which take 8, the sum that codes of 8 bits
// with minimums have in m (they are multiplied as q - 128: m + 128 d), BF16 of odd columns, the padding of rows to 16,
// of scales to 64 bytes and of columns to whole groups, and the codebooks of the IQ types: a value has a code of its
// own (its place among the magnitudes, and its sign) instead of a share in an index, as a look-up in a table of 16
// takes one instruction for 16 to 64 values and one in a grid a load for each 4 or 8. Bits per value, with scales:
//   IQ2_XXS 3.4 (stored 2.1), IQ2_XS 3.6 (2.3), IQ2_S 3.6 (2.6), IQ3_XXS 4.4 (3.1), IQ3_S 4.4 (3.4), IQ1_S 2.6 (1.6),
//   IQ1_M 3.6 (1.8)
//
// Codes of a block, v[i] being the group of four k values 4i .. 4i + 3 as [16 rows][4]:
//   8 bits   u8 v[8][16][4]
//   4 bits   u8 n[4][16][4]: the low nibbles of n[i] are v[i], the high ones v[4 + i]
//   5 bits   as 4, then u8 h[16][4]: bit i is bit 4 of v[i]
//   6 bits   as 4, then u8 h[2][16][4]: bits 2i, 2i + 1 of h[j] are bits 4, 5 of v[4j + i]
//   2 bits   u8 l[2][16][4]: bits 2i, 2i + 1 of l[j] are v[4j + i]
//   3 bits   as 2, then u8 h[16][4]: bit i is bit 2 of v[i]
//   1 bit    u8 h[16][4]: bit i is v[i]
#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/quant/coding.h"

namespace baton::host {

inline constexpr int kLanes = 16;
inline constexpr int kBlock = 32;  // values that share one activation scale

enum class Packing : uint8_t {
#define BATON_PACKING(name, format) k##name,
#include "baton/unit/host/packing_list.inc"
#undef BATON_PACKING
};
constexpr DType kPackedTypes[] = {
#define BATON_PACKING(name, format) DType::k##format,
#include "baton/unit/host/packing_list.inc"
#undef BATON_PACKING
};
inline constexpr int kPackings = sizeof(kPackedTypes) / sizeof(DType);

static constexpr DType type_of(Packing packing) { return kPackedTypes[static_cast<int>(packing)]; }
static constexpr const Coding& coding_of(Packing packing) { return line_of(type_of(packing)).coding; }
static constexpr bool is_integer(Packing packing) { return coding_of(packing).bits > 0; }

static constexpr int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Whether blocks may be of any size: the matrix says.
static constexpr bool is_any_block(const Coding& coding) {
  return coding.scale == ScaleType::kF32 && coding.parts == 0;
}

// Offsets in bytes from a group's first.
struct GroupLayout {
  int bits;
  int blocks;       // 0: Matrix::group / 32
  int d_stride;     // from a block's d to the next one's; 0: one for all
  int m;            // from d to m
  int s, n;         // the first part's
  int block_parts;  // parts of a block
  int scale_bytes;
};
static constexpr GroupLayout group_layout(Packing packing) {
  const FormatLine& line = line_of(type_of(packing));
  const Coding& coding = line.coding;
  constexpr int kScaleBytes[] = {2, 4, 1, 0};  // by ScaleType
  const int d_bytes = kLanes * kScaleBytes[static_cast<int>(coding.scale)];
  const int both = coding.minimums ? 2 * d_bytes : d_bytes, parts = kLanes * coding.parts;
  const bool any_block = is_any_block(coding);
  const bool own = line.block_elements == kBlock && !any_block;
  GroupLayout layout{};
  layout.bits = coding.bits;
  layout.blocks = any_block ? 0 : own ? 64 / both : static_cast<int>(line.block_elements) / kBlock;
  layout.d_stride = own ? both : 0;
  layout.m = d_bytes;
  layout.s = both;
  layout.n = both + parts;
  layout.block_parts = layout.blocks == 0 ? 0 : coding.parts / layout.blocks;
  const bool apart = coding.minimums && coding.part_bits == 8;
  layout.scale_bytes = own ? 64 : static_cast<int>(round_up(both + (apart ? 2 * parts : parts), 64));
  return layout;
}
static constexpr int64_t group_bytes(const GroupLayout& layout) {
  return layout.scale_bytes + int64_t{64} * layout.bits * layout.blocks;
}

inline constexpr int64_t kF8BlockBytes = 64 + kLanes * kBlock;

// A packed matrix. Panel p holds rows 16 p .. 16 p + 15 (rows past the end are zero).
struct Matrix {
  Packing packing = Packing::kF32;
  int64_t rows = 0, columns = 0, panels = 0;
  const unsigned char* data = nullptr;  // 64-byte aligned
  int64_t panel_bytes = 0;
  int64_t group = 0;  // values that share a scale, a multiple of 32, where the layout leaves them open
};

}  // namespace baton::host
