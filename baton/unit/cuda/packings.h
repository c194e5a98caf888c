// How the codes of most files are packed: what kernels for lists of one row have apart, so that a compiler knows all of
// it but how many rows and columns there are. Codes packed in other ways are taken apart by what a matrix says of
// itself, which takes a warp some ten reads and branches a row.
#pragma once

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr Packing kPackings[] = {Packing::kQ8_0, Packing::kQ4_K, Packing::kQ5_K, Packing::kQ6_K};

// What a matrix of it has of them; rows and columns are none.
BATON_BOTH constexpr Matrix packed_as(Packing packing) {
  Matrix m;
  m.form = Form::kCodes, m.scale_form = Form::kF16, m.packing = packing;
  switch (packing) {
    case Packing::kQ8_0:
      m.bits = 8, m.block_log2 = 5;
      break;
    case Packing::kQ4_K:
      m.bits = 4, m.block_log2 = 8, m.part_log2 = 5, m.has_minimums = true;
      break;
    case Packing::kQ5_K:
      m.bits = 5, m.block_log2 = 8, m.part_log2 = 5, m.has_minimums = true;
      break;
    case Packing::kQ6_K:
      m.bits = 6, m.block_log2 = 8, m.part_log2 = 4, m.zero = 32;
      break;
    case Packing::kOther:
    case Packing::kMixed:
      break;
  }
  return m;
}

// Of a matrix, by what it says of itself.
constexpr Packing packing_of(const Matrix& m) {
  for (const Packing packing : kPackings) {
    const Matrix as = packed_as(packing);
    if (m.form == as.form && m.scale_form == as.scale_form && m.bits == as.bits && m.block_log2 == as.block_log2 &&
        m.part_log2 == as.part_log2 && m.has_minimums == as.has_minimums && !m.has_table && m.zero == as.zero &&
        m.unit == as.unit)
      return packing;
  }
  return Packing::kOther;
}

// Of all matrices of a product.
constexpr Packing packing_of(const Instruction& in) {
  Packing all = in.matrix[0].packing;
  for (int32_t i = 0; i < in.matrices; ++i) {
    if (in.matrix[i].packing == Packing::kOther) return Packing::kOther;
    if (in.matrix[i].packing != all) all = Packing::kMixed;
  }
  return all;
}

}  // namespace baton::cuda
