// Rows of stored blocks to panels of 16 rows. One writer per stored type; all read with unaligned loads.
#include "baton/unit/host/pack.h"

#include <algorithm>
#include <cstring>

#include "baton/base/bytes.h"

namespace baton::host {
namespace {

using Bytes = unsigned char;

constexpr int64_t kSuper = 256;

int64_t scale_bytes(Packing packing, int64_t columns) {
  const int64_t blocks = columns / kBlock, supers = columns / kSuper;
  switch (packing) {
    case Packing::kF32:
    case Packing::kF16:
    case Packing::kBF16:
      return 0;
    case Packing::kQ8_0:
    case Packing::kQ4_0:
    case Packing::kQ5_0:
      return blocks * 32;
    case Packing::kQ4_1:
    case Packing::kQ5_1:
      return blocks * 64;
    case Packing::kQ4_K:
    case Packing::kQ5_K:
      return supers * 320;
    case Packing::kQ6_K:
      return supers * 288;
  }
  return 0;
}

int64_t value_bytes(Packing packing, int64_t columns) {
  const int64_t blocks = columns / kBlock;
  switch (packing) {
    case Packing::kF32:
      return columns * 64;
    case Packing::kF16:
      return columns * 32;
    case Packing::kBF16:
      return round_up(columns, 2) * 32;
    case Packing::kQ8_0:
      return blocks * 512;
    case Packing::kQ4_0:
    case Packing::kQ4_1:
    case Packing::kQ4_K:
      return blocks * 256;
    case Packing::kQ5_0:
    case Packing::kQ5_1:
    case Packing::kQ5_K:
      return blocks * 320;
    case Packing::kQ6_K:
      return blocks * 384;
  }
  return 0;
}

// The place of one row in a panel.
struct Lane {
  Bytes* scales;
  Bytes* values;
  int lane;
  int64_t columns;
};

void put_f16(Bytes* array, int lane, const Bytes* from) { std::memcpy(array + 2 * lane, from, 2); }

// 32 values of at most 6 bits: nibbles, then `high_bits` bits of each in 64-byte groups.
void put_block(const uint8_t (&q)[kBlock], int high_bits, int lane, Bytes* block) {
  for (int i = 0; i < 16; ++i) {
    block[64 * (i / 4) + 4 * lane + i % 4] = static_cast<Bytes>((q[i] & 15) | (q[16 + i] & 15) << 4);
  }
  if (high_bits == 1) {
    for (int c = 0; c < 4; ++c) {
      int bits = 0;
      for (int i = 0; i < 8; ++i) bits |= (q[4 * i + c] >> 4) << i;
      block[256 + 4 * lane + c] = static_cast<Bytes>(bits);
    }
  } else if (high_bits == 2) {
    for (int half = 0; half < 2; ++half) {
      for (int c = 0; c < 4; ++c) {
        int bits = 0;
        for (int i = 0; i < 4; ++i) bits |= (q[16 * half + 4 * i + c] >> 4) << 2 * i;
        block[256 + 64 * half + 4 * lane + c] = static_cast<Bytes>(bits);
      }
    }
  }
}

// f16 d; i8 q[32]
void put_q8_0(const Bytes* from, const Lane& to) {
  for (int64_t b = 0; b < to.columns / kBlock; ++b, from += 34) {
    put_f16(to.scales + 32 * b, to.lane, from);
    for (int i = 0; i < 8; ++i) {
      const uint32_t four = load_as<uint32_t>(from + 2 + 4 * i) ^ 0x80808080u;
      store_as(to.values + 512 * b + 64 * i + 4 * to.lane, four);
    }
  }
}

// f16 d; [f16 m]; [u8 qh[4]]; u8 qs[16]: Q4_0, Q4_1, Q5_0, Q5_1
void put_simple(const Bytes* from, bool has_minimum, int high_bits, const Lane& to) {
  const int64_t blocks = to.columns / kBlock;
  for (int64_t b = 0; b < blocks; ++b) {
    put_f16(to.scales + 32 * b, to.lane, from);
    from += 2;
    if (has_minimum) {
      put_f16(to.scales + 32 * (blocks + b), to.lane, from);
      from += 2;
    }
    uint32_t high = 0;
    if (high_bits == 1) {
      high = load_as<uint32_t>(from);
      from += 4;
    }
    uint8_t q[kBlock];
    for (int i = 0; i < 16; ++i) {
      q[i] = static_cast<uint8_t>((from[i] & 15) | (high >> i & 1) << 4);
      q[16 + i] = static_cast<uint8_t>(from[i] >> 4 | (high >> (16 + i) & 1) << 4);
    }
    from += 16;
    put_block(q, high_bits, to.lane, to.values + b * (256 + 64 * high_bits));
  }
}

// f16 d, dmin; u8 scales[12]; [u8 qh[32]]; u8 qs[128]: Q4_K, Q5_K
void put_super(const Bytes* from, int high_bits, const Lane& to) {
  for (int64_t s = 0; s < to.columns / kSuper; ++s) {
    Bytes* super = to.scales + 320 * s;
    put_f16(super, to.lane, from);
    put_f16(super + 32, to.lane, from + 2);
    const Bytes* packed = from + 4;
    for (int j = 0; j < 8; ++j) {
      const int scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
      const int minimum = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | packed[j] >> 6 << 4;
      super[64 + 16 * j + to.lane] = static_cast<Bytes>(scale);
      super[192 + 16 * j + to.lane] = static_cast<Bytes>(minimum);
    }
    const Bytes* high = from + 16;
    const Bytes* nibbles = high + 32 * high_bits;
    for (int b = 0; b < 8; ++b) {
      uint8_t q[kBlock];
      for (int i = 0; i < kBlock; ++i) {
        q[i] = static_cast<uint8_t>(nibbles[32 * (b / 2) + i] >> 4 * (b % 2) & 15);
        if (high_bits == 1) q[i] = static_cast<uint8_t>(q[i] | (high[i] >> b & 1) << 4);
      }
      put_block(q, high_bits, to.lane, to.values + (8 * s + b) * (256 + 64 * high_bits));
    }
    from = nibbles + 128;
  }
}

// u8 ql[128]; u8 qh[64]; i8 scales[16]; f16 d
void put_q6_k(const Bytes* from, const Lane& to) {
  for (int64_t s = 0; s < to.columns / kSuper; ++s, from += 210) {
    Bytes* super = to.scales + 288 * s;
    put_f16(super, to.lane, from + 208);
    for (int j = 0; j < 16; ++j) super[32 + 16 * j + to.lane] = from[192 + j];
    for (int b = 0; b < 8; ++b) {
      const Bytes* low = from + 64 * (b / 4) + 32 * (b % 2);
      const Bytes* high = from + 128 + 32 * (b / 4);
      const int low_shift = b % 4 / 2 * 4, high_shift = b % 4 * 2;
      uint8_t q[kBlock];
      for (int i = 0; i < kBlock; ++i) {
        q[i] = static_cast<uint8_t>((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
      }
      put_block(q, 2, to.lane, to.values + (8 * s + b) * 384);
    }
  }
}

void put_row(const Matrix& m, DType dtype, const Bytes* from, const Lane& to, float* row) {
  switch (m.packing) {
    case Packing::kF32:
      format_of(dtype).decode(reinterpret_cast<const std::byte*>(from), row, static_cast<size_t>(m.columns));
      for (int64_t k = 0; k < m.columns; ++k) store_as(to.values + 64 * k + 4 * to.lane, row[k]);
      return;
    case Packing::kF16:
      for (int64_t k = 0; k < m.columns; ++k) std::memcpy(to.values + 32 * k + 2 * to.lane, from + 2 * k, 2);
      return;
    case Packing::kBF16:
      for (int64_t k = 0; k < m.columns; ++k) {
        std::memcpy(to.values + 64 * (k / 2) + 4 * to.lane + 2 * (k % 2), from + 2 * k, 2);
      }
      return;
    case Packing::kQ8_0:
      return put_q8_0(from, to);
    case Packing::kQ4_0:
      return put_simple(from, false, 0, to);
    case Packing::kQ4_1:
      return put_simple(from, true, 0, to);
    case Packing::kQ5_0:
      return put_simple(from, false, 1, to);
    case Packing::kQ5_1:
      return put_simple(from, true, 1, to);
    case Packing::kQ4_K:
      return put_super(from, 0, to);
    case Packing::kQ5_K:
      return put_super(from, 1, to);
    case Packing::kQ6_K:
      return put_q6_k(from, to);
  }
}

}  // namespace

Packing packing_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return Packing::kF16;
    case DType::kBF16:
      return Packing::kBF16;
    case DType::kQ8_0:
      return Packing::kQ8_0;
    case DType::kQ4_0:
      return Packing::kQ4_0;
    case DType::kQ4_1:
      return Packing::kQ4_1;
    case DType::kQ5_0:
      return Packing::kQ5_0;
    case DType::kQ5_1:
      return Packing::kQ5_1;
    case DType::kQ4_K:
      return Packing::kQ4_K;
    case DType::kQ5_K:
      return Packing::kQ5_K;
    case DType::kQ6_K:
      return Packing::kQ6_K;
    default:
      return Packing::kF32;
  }
}

bool is_native(DType dtype) { return dtype == DType::kF32 || packing_of(dtype) != Packing::kF32; }

Matrix matrix_shape(DType dtype, int64_t rows, int64_t columns) {
  Matrix m;
  m.packing = packing_of(dtype);
  m.rows = rows;
  m.columns = columns;
  m.panels = (rows + kLanes - 1) / kLanes;
  m.values_offset = round_up(scale_bytes(m.packing, columns), 64);
  m.panel_bytes = m.values_offset + round_up(value_bytes(m.packing, columns), 64);
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
      const auto* from = reinterpret_cast<const Bytes*>(source + (p * kLanes + r) * row_size);
      put_row(m, dtype, from, {panel, panel + m.values_offset, static_cast<int>(r), m.columns}, row);
    }
  }
}

}  // namespace baton::host
