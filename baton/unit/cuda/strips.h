// Where a row of codes has what (Matrix, instruction.h): in strips of kStrip columns, each with its scales, one behind
// the other. So a part of a row on its way to a block is one run of bytes, and so are the same parts of rows that
// follow each other. The same for kernels, for the bodies that stand for them on the host, and for who packs.
#pragma once

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr int32_t kStripGroups = kStrip / kGroup;

// Of a strip's scales, in bytes from their beginning, which is where its d are.
struct ScalePlaces {
  int32_t minimums, parts, end;
};
BATON_BOTH constexpr ScalePlaces scale_places(const Matrix& matrix, int32_t groups) {
  const int32_t size = matrix.scale_form == Form::kF32 ? 4 : 2;
  const int32_t bytes = ((kGroup * groups >> matrix.block_log2) * size + 3) / 4 * 4;
  ScalePlaces places = {bytes, bytes, 0};
  if (matrix.has_minimums) places.parts += bytes;
  const int32_t parts = matrix.part_log2 == 0 ? 0 : kGroup * groups >> matrix.part_log2;
  places.end = places.parts + (matrix.has_minimums ? 2 * parts : parts);
  return places;
}

// Multiples of 16, so that copies of 16 bytes go around nothing.
BATON_BOTH constexpr int32_t planes_bytes(int32_t bits, int32_t groups) { return (4 * bits * groups + 15) / 16 * 16; }
BATON_BOTH constexpr int32_t scales_bytes(const Matrix& matrix, int32_t groups) {
  return (scale_places(matrix, groups).end + 15) / 16 * 16;
}
BATON_BOTH constexpr int32_t strip_bytes(const Matrix& matrix, int32_t groups) {
  return planes_bytes(matrix.bits, groups) + scales_bytes(matrix, groups);
}

// Of the strip that has a group: its number within the row, its groups, and the group's number within it.
struct StripGroup {
  int32_t strip, groups, group;

  BATON_BOTH constexpr StripGroup(int32_t pitch, int32_t of_row)
      : strip(of_row / kStripGroups),
        groups(pitch / kGroup - strip * kStripGroups),
        group(of_row - strip * kStripGroups) {
    if (groups > kStripGroups) groups = kStripGroups;
  }
};

// Sets what a matrix of codes has of its layout, from its pitch and from what it is coded as.
BATON_BOTH constexpr void lay_strips(Matrix& matrix) {
  const int32_t groups = matrix.pitch / kGroup, rest = groups % kStripGroups;
  matrix.strip_bytes = strip_bytes(matrix, kStripGroups);
  matrix.row_bytes = groups / kStripGroups * matrix.strip_bytes + (rest == 0 ? 0 : strip_bytes(matrix, rest));
}

}  // namespace baton::cuda
