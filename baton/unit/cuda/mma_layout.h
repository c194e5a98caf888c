// Which products of several rows go on tensor cores (kernels/products_mma.cuh): the same for kernels and for the host.
#pragma once

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr int kMmaSpan = 128;   // columns that a warp multiplies at a time
inline constexpr int kGroupsMax = 16;  // norms of a row

// A norm of the whole row scales its products instead of the row.
BATON_BOTH constexpr bool scales_products(const Instruction& in) {
  return in.prologue == Prologue::kRms && in.op.width == in.x_width;
}
// A norm that a warp can make while it has a span.
BATON_BOTH constexpr bool norms_spans(const Instruction& in) {
  return in.prologue == Prologue::kGated && in.op.width == kMmaSpan;
}
BATON_BOTH constexpr bool norms_before(const Instruction& in) {
  return in.prologue != Prologue::kNone && in.prologue != Prologue::kGate && !scales_products(in) && !norms_spans(in);
}
// Whether they take a kMultiply. Matrices of a product are of one form there: mma_list.h.
BATON_BOTH constexpr bool takes_mma(const Instruction& in) {
  for (int i = 1; i < in.matrices; ++i) {
    if (in.matrix[i].form != in.matrix[0].form) return false;
  }
  if (norms_before(in) && in.x_width > kGroupsMax * in.op.width) return false;
  const bool pairs = in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu;
  return !pairs || in.matrix[0].bits == in.matrix[1].bits;
}

}  // namespace baton::cuda
