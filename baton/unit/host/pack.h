// Packs a weight matrix into the panels the kernels read, at load.
//
// A panel is 16 rows. Bytes of one panel, for `columns` values of k (b counts blocks of 32, s super-blocks of 256):
//   F32    no scales; values f32 [k][16]
//   F16    no scales; values f16 [k][16]
//   BF16   no scales; values bf16 [k / 2][16][2], columns rounded up to even
//   Q8_0   f16 d[b][16];                              u8 v[b][8][16][4], v = q + 128
//   Q4_0   f16 d[b][16];                              u8 v[b][4][16][4], low nibble: values 4j + i of the block's first
//                                                     half, high nibble: the same of the second half; value q
//   Q4_1   f16 d[b][16], f16 m[b][16];                as Q4_0
//   Q5_0   f16 d[b][16];                              as Q4_0, then u8 h[16][4]: bit i is bit 4 of v[i]
//   Q5_1   f16 d[b][16], f16 m[b][16];                as Q5_0
//   Q4_K   per s: f16 d[16], f16 dmin[16], u8 sc[8][16], u8 m[8][16];   8 blocks as Q4_0
//   Q5_K   the same;                                  8 blocks as Q5_0
//   Q6_K   per s: f16 d[16], i8 sc[16][16];           8 blocks as Q4_0, each then u8 h[2][16][4]: bits 2i, 2i+1 of h[j]
//                                                     are bits 4, 5 of v[4j + i]
//   Q2_K   per s: f16 d[16], f16 dmin[16], u8 sm[16][16] (low nibble scale, high nibble minimum);
//                                                     8 blocks of u8 l[2][16][4]: bits 2i, 2i+1 of l[j] are v[4j + i]
//   Q3_K   as Q6_K;                                   as Q2_K, each then u8 h[16][4]: bit i is bit 2 of v[i]
//   IQ4_NL f16 d[b][16];                              as Q4_0
//   IQ4_XS per s: f16 d[16], i8 sc[8][16];            as Q4_0
//   MXFP4  u8 e[b][16];                               as Q4_0
//   Affine per group: f32 d[16], f32 m[16];           codes of 2 bits as Q2_K, 3 as Q3_K, 4 as Q4_0, 5 as Q5_0, 6 as
//                                                     Q6_K, 8 as Q8_0 with v = q and m = bias + 128 d
// where v[i] of a block means the group of four k values 4i .. 4i + 3, [16 rows][4].
// Bytes are those of the stored type, but for Q4_K and Q5_K (+64 bytes per 16 x 256 values: scales unpacked from 6 bits
// to 8), Q3_K (+64 likewise), IQ4_XS (+32), BF16 of odd columns, the padding of rows to 16 and of scales to 64 bytes.
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

// Everything but `data`.
Matrix matrix_shape(DType dtype, int64_t rows, int64_t columns);
inline int64_t matrix_bytes(const Matrix& m) { return m.panels * m.panel_bytes; }

// Writes panels [begin, end) of `source` (row-major, `dtype`, any alignment) to `to`, the matrix's first byte.
// `row` is scratch of `columns` floats. Panels are independent: threads may share a matrix.
void pack_panels(const Matrix& m, DType dtype, const std::byte* source, int64_t begin, int64_t end, unsigned char* to,
                 float* row);

}  // namespace baton::host
