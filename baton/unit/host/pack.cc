// One row of a stored type into its place in a panel.
#include "baton/unit/host/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "baton/base/bytes.h"

namespace baton::host {
namespace {

// Whether a type's values are what the packing holds.
constexpr bool holds(Packing packing, DType dtype) {
  const FormatLine &own = line_of(type_of(packing)), &line = line_of(dtype);
  if (!is_integer(packing)) return dtype == type_of(packing);
  const bool any_block = line.coding.scale == ScaleType::kF32;
  return own.coding == line.coding && (any_block || own.block_elements == line.block_elements);
}

constexpr Packing first_that_holds(DType dtype) {
  for (int i = 0; i < kPackings; ++i) {
    if (holds(static_cast<Packing>(i), dtype)) return static_cast<Packing>(i);
  }
  return Packing::kF32;
}

// What the kernels can do, and no packing twice.
constexpr bool is_sound(Packing packing) {
  const Coding& coding = coding_of(packing);
  if (first_that_holds(type_of(packing)) != packing) return false;
  if (!is_integer(packing)) return true;
  const GroupLayout layout = group_layout(packing);
  const bool known_bits = (coding.bits >= 2 && coding.bits <= 6) || coding.bits == 8;
  const bool whole_blocks = line_of(type_of(packing)).block_elements % kBlock == 0;
  const bool whole_parts = coding.parts == 0 || layout.block_parts * layout.blocks == coding.parts;
  const bool adds_to_m = coding.bits == 8 && coding.minimums;
  return known_bits && whole_blocks && whole_parts && layout.block_parts <= 2 && layout.scale_bytes % 64 == 0 &&
         (!adds_to_m || (coding.scale == ScaleType::kF32 && coding.parts == 0));
}
#define BATON_PACKING(name, format) static_assert(is_sound(Packing::k##name), #name);
#include "baton/unit/host/packing_list.inc"
#undef BATON_PACKING

GroupLayout layout_of(const Matrix& m) {
  GroupLayout layout = group_layout(m.packing);
  if (layout.blocks == 0) layout.blocks = static_cast<int>(m.group / kBlock);
  return layout;
}

int64_t panel_bytes(const Matrix& m) {
  if (m.packing == Packing::kF32) return m.columns * 64;
  if (m.packing == Packing::kF16) return round_up(m.columns * 32, 64);
  if (m.packing == Packing::kBF16) return round_up(m.columns, 2) * 32;
  const GroupLayout layout = layout_of(m);
  return (m.columns / kBlock + layout.blocks - 1) / layout.blocks * group_bytes(layout);
}

using Bytes = unsigned char;

// Four codes are one word: word j of a row goes to group j.
struct Words {
  explicit Words(const uint8_t* codes) { std::memcpy(at, codes, sizeof(at)); }
  uint32_t at[8];
};

// bits [shift, shift + 2) of each code, four codes to a byte: two groups of [16 rows][4].
void put_pairs(const Words& q, int shift, Bytes* to) {
  for (int half = 0; half < 2; ++half) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= (q.at[4 * half + i] >> shift & 0x03030303u) << 2 * i;
    store_as(to + 64 * half, bits);
  }
}

// bit `shift` of each code, eight codes to a byte: one group.
void put_bits(const Words& q, int shift, Bytes* to) {
  uint32_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= (q.at[i] >> shift & 0x01010101u) << i;
  store_as(to, bits);
}

// `to`: the row's first word in a block.
void put_codes(const uint8_t* codes, int bits, Bytes* to) {
  const Words q(codes);
  if (bits == 8) {
    for (int i = 0; i < 8; ++i) store_as(to + 64 * i, q.at[i]);
  } else if (bits < 4) {
    put_pairs(q, 0, to);
    if (bits == 3) put_bits(q, 2, to + 128);
  } else {
    for (int i = 0; i < 4; ++i) {
      store_as(to + 64 * i, (q.at[i] & 0x0f0f0f0fu) | (q.at[4 + i] & 0x0f0f0f0fu) << 4);
    }
    if (bits == 5) put_bits(q, 4, to + 256);
    if (bits == 6) put_pairs(q, 4, to + 256);
  }
}

void put_scale(ScaleType type, uint32_t bits, int row, Bytes* array) {
  const auto at = static_cast<size_t>(row);
  switch (type) {
    case ScaleType::kF16:
      return store_as(array + 2 * at, static_cast<uint16_t>(bits));
    case ScaleType::kF32:
      return store_as(array + 4 * at, bits);
    case ScaleType::kPower:
      array[at] = static_cast<Bytes>(bits);
  }
}

// Scales of a stored block whose first block of 32 is block `b` of a group.
void put_scales(const Coding& coding, const GroupLayout& layout, const Codes& block, int64_t b, int row, Bytes* group) {
  Bytes* const d = group + layout.d_stride * b;
  put_scale(coding.scale, block.d, row, d);
  if (coding.minimums && coding.bits == 8) {
    const auto m = std::bit_cast<float>(block.m) + 128 * std::bit_cast<float>(block.d);
    store_as(d + layout.m + 4 * row, m);
  } else if (coding.minimums) {
    put_scale(coding.scale, block.m, row, d + layout.m);
  }
  const bool apart = coding.minimums && coding.part_bits == 8, joined = coding.minimums && !apart;
  for (int part = 0; part < coding.parts; ++part) {
    const int at = kLanes * part + row;
    group[layout.s + at] = static_cast<Bytes>(joined ? block.s[part] | block.n[part] << 4 : block.s[part]);
    if (apart) group[layout.n + at] = block.n[part];
  }
}

void put_integers(const Matrix& m, const Format& format, const std::byte* from, int row, Bytes* panel) {
  const GroupLayout layout = layout_of(m);
  const int64_t blocks = format.block_elements / kBlock;
  Codes block;
  for (int64_t first = 0; first < m.columns / kBlock; first += blocks, from += format.block_bytes) {
    format.unpack(from, block);
    Bytes* const group = panel + first / layout.blocks * group_bytes(layout);
    const int64_t in_group = first % layout.blocks;
    put_scales(format.coding, layout, block, in_group, row, group);
    Bytes* codes = group + layout.scale_bytes + in_group * 64 * layout.bits + 4 * row;
    for (int64_t b = 0; b < blocks; ++b, codes += 64 * layout.bits)
      put_codes(block.codes + kBlock * b, layout.bits, codes);
  }
}

void put_row(const Matrix& m, const Format& format, const std::byte* from, int row, Bytes* panel, float* values) {
  switch (m.packing) {
    case Packing::kF32:
      format.decode(from, values, static_cast<size_t>(m.columns));
      for (int64_t k = 0; k < m.columns; ++k) store_as(panel + 64 * k + 4 * row, values[k]);
      return;
    case Packing::kF16:
      for (int64_t k = 0; k < m.columns; ++k) std::memcpy(panel + 32 * k + 2 * row, from + 2 * k, 2);
      return;
    case Packing::kBF16:
      for (int64_t k = 0; k < m.columns; ++k) {
        std::memcpy(panel + 64 * (k / 2) + 4 * row + 2 * (k % 2), from + 2 * k, 2);
      }
      return;
    default:
      return put_integers(m, format, from, row, panel);
  }
}

}  // namespace

Packing packing_of(DType dtype) { return first_that_holds(dtype); }

bool is_native(DType dtype) { return holds(packing_of(dtype), dtype); }

Matrix matrix_shape(DType dtype, int64_t rows, int64_t columns) {
  Matrix m;
  m.packing = packing_of(dtype);
  m.rows = rows;
  m.columns = columns;
  m.panels = (rows + kLanes - 1) / kLanes;
  m.group = format_of(dtype).block_elements;
  m.panel_bytes = panel_bytes(m);
  return m;
}

void pack_panels(const Matrix& m, DType dtype, const std::byte* source, int64_t begin, int64_t end, Bytes* to,
                 float* row) {
  const Format& format = format_of(dtype);
  const int64_t row_size = m.columns / format.block_elements * format.block_bytes;
  for (int64_t p = begin; p < end; ++p) {
    Bytes* panel = to + p * m.panel_bytes;
    const int64_t rows = std::min<int64_t>(kLanes, m.rows - p * kLanes);
    const bool ragged = rows < kLanes || (m.packing == Packing::kBF16 && m.columns % 2 != 0);
    if (ragged) std::memset(panel, 0, static_cast<size_t>(m.panel_bytes));
    for (int64_t r = 0; r < rows; ++r) {
      put_row(m, format, source + (p * kLanes + r) * row_size, static_cast<int>(r), panel, row);
    }
  }
}

}  // namespace baton::host
