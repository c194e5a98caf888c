// Pieces of weights: where they lie in memory, and how in a slot of shared memory (feed.cuh).
#pragma once

#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/device.cuh"

namespace baton::cuda {

// Groups of a piece of codes, `wide` columns from `column` on, in the strip that they are of. In a slot there are their
// planes, as in a strip of so many groups, then all scales of the strip.
struct PieceOfStrip {
  int first, groups, of_strip;  // first: within the strip

  __device__ __forceinline__ PieceOfStrip(int pitch, int column, int wide) {
    const StripGroup of(pitch, column / kGroup);
    first = of.group, of_strip = of.groups;
    groups = min(wide / kGroup, of_strip - first);
  }
};

// What a piece is copied by: run(from, to, bytes), multiples of 16, `to` from the piece's place on. A whole strip is
// one run; planes of a part of it are apart.
template <class Run>
__device__ __forceinline__ void piece_runs(const Matrix& matrix, int64_t row, int column, int wide, Run&& run) {
  const unsigned char* from = row_at(matrix, row);
  if (matrix.form != Form::kCodes) {
    const int log2 = matrix.form == Form::kF32 ? 2 : 1;
    return run(from + (int64_t{column} << log2), 0, static_cast<uint32_t>(min(wide, matrix.pitch - column)) << log2);
  }
  const PieceOfStrip of(matrix.pitch, column, wide);
  from += column / kStrip * matrix.strip_bytes;
  if (of.groups == of.of_strip) return run(from, 0, static_cast<uint32_t>(strip_bytes(matrix, of.groups)));
  uint32_t to = 0;
  for (int plane = 8; plane > 0; plane /= 2) {
    if ((matrix.bits & plane) == 0) continue;
    for (int half = plane == 8 ? 2 : 1; half > 0; --half) {  // a plane of 8 bits is two
      const int each = plane == 8 ? 16 : 4 * plane;
      run(from + each * of.first, to, static_cast<uint32_t>((each * of.groups + 15) / 16 * 16));
      from += each * of.of_strip, to += static_cast<uint32_t>(each * of.groups);
    }
  }
  from = row_at(matrix, row) + column / kStrip * matrix.strip_bytes + planes_bytes(matrix.bits, of.of_strip);
  run(from, static_cast<uint32_t>(planes_bytes(matrix.bits, of.groups)),
      static_cast<uint32_t>(scales_bytes(matrix, of.of_strip)));
}

}  // namespace baton::cuda
