// Which products of several rows go on tensor cores (kernels/products_mma.cuh): the same for kernels and for the host.
#pragma once

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr int kMmaSpan = 128;  // columns that a warp multiplies at a time

inline constexpr uint32_t kMmaKeptBytes = 10240;  // what the kernel has beside its dynamic shared memory
// Shared memory of a warp's step of 512 threads: four places of 16 bytes each. With so much two steps are on their way.
inline constexpr uint32_t kMmaStepBytes = 4 * kThreads * 16;
inline constexpr uint32_t kMmaDeepShared = 160 * 1024;

// Rows of x as products take them (kernels/mma_rows.cuh), in memory: so many tiles of 8. Behind them, where a norm of
// the whole row is to scale products, the squares of each eight values, summed, f32 [row][spans][16].
inline constexpr int kPlaneTiles = 8;
inline constexpr int kPlaneRows = 8 * kPlaneTiles;
inline constexpr uint32_t kPlaneSpanBytes = 4 * kPlaneTiles * 1024;
inline constexpr int kSquaresOfSpan = kMmaSpan / 8;
BATON_BOTH constexpr int mma_spans(const Instruction& in) { return (in.matrix[0].pitch + kMmaSpan - 1) / kMmaSpan; }
BATON_BOTH constexpr uint64_t squares_behind(int spans) {
  return uint64_t{kPlaneSpanBytes} * static_cast<uint64_t>(spans);
}
BATON_BOTH constexpr uint64_t planes_bytes(const Instruction& in) {
  const int spans = mma_spans(in);
  return squares_behind(spans) + sizeof(float) * kPlaneRows * kSquaresOfSpan * static_cast<uint64_t>(spans);
}

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
  const bool pairs = in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu;
  return !pairs || in.matrix[0].bits == in.matrix[1].bits;
}

}  // namespace baton::cuda
