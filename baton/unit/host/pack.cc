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
  const bool any_block = is_any_block(line.coding);
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
  const bool known_bits = (coding.bits >= 1 && coding.bits <= 6) || coding.bits == 8;
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
  if (m.packing == Packing::kF8) return m.columns / kBlock * kF8BlockBytes;
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
template <int Bits>
void put_codes(const uint8_t* codes, Bytes* to) {
  const Words q(codes);
  if constexpr (Bits == 8) {
    for (int i = 0; i < 8; ++i) store_as(to + 64 * i, q.at[i]);
  } else if constexpr (Bits == 1) {
    put_bits(q, 0, to);
  } else if constexpr (Bits < 4) {
    put_pairs(q, 0, to);
    if (Bits == 3) put_bits(q, 2, to + 128);
  } else {
    for (int i = 0; i < 4; ++i) {
      store_as(to + 64 * i, (q.at[i] & 0x0f0f0f0fu) | (q.at[4 + i] & 0x0f0f0f0fu) << 4);
    }
    if (Bits == 5) put_bits(q, 4, to + 256);
    if (Bits == 6) put_pairs(q, 4, to + 256);
  }
}

template <ScaleType kType>
void put_scale(uint32_t bits, int row, Bytes* array) {
  if constexpr (kType == ScaleType::kF16) store_as(array + 2 * row, static_cast<uint16_t>(bits));
  if constexpr (kType == ScaleType::kF32) store_as(array + 4 * row, bits);
  if constexpr (kType == ScaleType::kPower) array[row] = static_cast<Bytes>(bits);
}

// Scales of a stored block whose first block of 32 is block `b` of a group.
template <Packing P>
void put_scales(const Codes& block, int64_t b, int row, Bytes* group) {
  constexpr Coding kCoding = coding_of(P);
  constexpr GroupLayout kLayout = group_layout(P);
  Bytes* const d = group + kLayout.d_stride * b;
  put_scale<kCoding.scale>(block.d, row, d);
  if constexpr (kCoding.minimums && kCoding.bits == 8) {
    const auto m = std::bit_cast<float>(block.m) + 128 * std::bit_cast<float>(block.d);
    store_as(d + kLayout.m + 4 * row, m);
  } else if constexpr (kCoding.minimums) {
    put_scale<kCoding.scale>(block.m, row, d + kLayout.m);
  }
  constexpr bool kApart = kCoding.minimums && kCoding.part_bits == 8, kJoined = kCoding.minimums && !kApart;
  for (int part = 0; part < kCoding.parts; ++part) {
    const int at = kLanes * part + row;
    group[kLayout.s + at] = static_cast<Bytes>(kJoined ? block.s[part] | block.n[part] << 4 : block.s[part]);
    if (kApart) group[kLayout.n + at] = block.n[part];
  }
}

// All but the call that takes a block apart is constant: a block of 32 takes twice as long with the Coding looked at.
template <Packing P>
void put_integers(const Matrix& m, const Format& format, const std::byte* from, int row, Bytes* panel) {
  constexpr GroupLayout kLayout = group_layout(P);
  constexpr int64_t kBlockBytes = int64_t{64} * kLayout.bits;
  const int64_t group_blocks = kLayout.blocks == 0 ? m.group / kBlock : kLayout.blocks;
  const int64_t group_bytes = kLayout.scale_bytes + group_blocks * kBlockBytes;
  const int64_t stored_blocks = format.block_elements / kBlock;
  Codes block;
  for (int64_t first = 0; first < m.columns / kBlock; first += stored_blocks, from += format.block_bytes) {
    format.unpack(from, block);
    Bytes* const group = panel + first / group_blocks * group_bytes;
    const int64_t in_group = first % group_blocks;
    put_scales<P>(block, in_group, row, group);
    Bytes* codes = group + kLayout.scale_bytes + in_group * kBlockBytes + 4 * row;
    for (int64_t b = 0; b < stored_blocks; ++b, codes += kBlockBytes) {
      put_codes<kLayout.bits>(block.codes + kBlock * b, codes);
    }
  }
}

using RowWriter = void (*)(const Matrix& m, const Format& format, const std::byte* from, int row, Bytes* panel);
template <Packing P>
constexpr RowWriter row_writer() {
  if constexpr (is_integer(P)) {
    return put_integers<P>;
  } else {
    return nullptr;
  }
}
constexpr RowWriter kRowWriters[] = {
#define BATON_PACKING(name, format) row_writer<Packing::k##name>(),
#include "baton/unit/host/packing_list.inc"
#undef BATON_PACKING
};

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
    case Packing::kF8:
      for (int64_t b = 0; b < m.columns / kBlock; ++b, from += format.block_bytes, panel += kF8BlockBytes) {
        std::memcpy(panel + 4 * row, from, 4);
        for (int i = 0; i < kBlock; ++i) panel[64 + kLanes * i + row] = static_cast<Bytes>(from[4 + i]);
      }
      return;
    default:
      return kRowWriters[static_cast<int>(m.packing)](m, format, from, row, panel);
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
