// Packs a weight matrix into the panels the kernels read, at load.
//
// A panel is 16 rows. F32: f32 [k][16]. F16: f16 [k][16]. BF16: bf16 [k / 2][16][2], columns rounded up to even. The
// others are groups (GroupLayout) of scales, padded to 64 bytes, and blocks of codes. Scales of a group, b being a
// block in it:
//   Q8_0, Q4_0, Q5_0, IQ4_NL   f16 d[b][16]
//   Q4_1, Q5_1                 f16 d[16], f16 m[16]
//   Q4_K, Q5_K                 f16 d[16], f16 dmin[16], u8 sc[8][16], u8 m[8][16]
//   Q6_K, Q3_K                 f16 d[16], i8 sc[16][16]
//   Q2_K                       f16 d[16], f16 dmin[16], u8 sm[16][16]: low nibble scale, high nibble minimum
//   IQ4_XS                     f16 d[16], i8 sc[8][16]
//   MXFP4                      u8 e[b][16]
//   Affine                     f32 d[16], f32 m[16]; m = bias + 128 d for codes of 8 bits
// Codes of a block, v[i] being the group of four k values 4i .. 4i + 3 as [16 rows][4]:
//   8 bits   u8 v[8][16][4]; Q8_0's are q + 128
//   4 bits   u8 n[4][16][4]: the low nibbles of n[i] are v[i], the high ones v[4 + i]
//   5 bits   as 4, then u8 h[16][4]: bit i is bit 4 of v[i]
//   6 bits   as 4, then u8 h[2][16][4]: bits 2i, 2i + 1 of h[j] are bits 4, 5 of v[4j + i]
//   2 bits   u8 l[2][16][4]: bits 2i, 2i + 1 of l[j] are v[4j + i]
//   3 bits   as 2, then u8 h[16][4]: bit i is bit 2 of v[i]
// Bytes are those of the stored type, but for Q4_K and Q5_K (+64 bytes per 16 x 256 values: scales unpacked from 6 bits
// to 8), Q3_K (+96 likewise), Q6_K (+32), IQ4_XS (+64), BF16 of odd columns, and the padding of rows to 16 and of
// columns to whole groups.
#pragma once

#include <cstdint>

#include "baton/quant/format.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {

// The packing for a stored type and whether it keeps the stored values as they are. A type without one is decoded to
// F32.
Packing packing_of(DType dtype);
bool is_native(DType dtype);
inline bool is_integer(Packing packing) { return packing >= Packing::kQ8_0; }

constexpr int64_t group_bytes(const GroupLayout& layout) {
  return layout.scale_bytes + int64_t{64} * layout.bits * layout.blocks;
}

// Everything but `data`.
Matrix matrix_shape(DType dtype, int64_t rows, int64_t columns);
inline int64_t matrix_bytes(const Matrix& m) { return m.panels * m.panel_bytes; }

// Writes panels [begin, end) of `source` (row-major, `dtype`, any alignment) to `to`, the matrix's first byte.
// `row` is scratch of `columns` floats. Panels are independent: threads may share a matrix.
void pack_panels(const Matrix& m, DType dtype, const std::byte* source, int64_t begin, int64_t end, unsigned char* to,
                 float* row);

}  // namespace baton::host
