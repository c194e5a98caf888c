// Weights on their way to the lanes that will multiply them on tensor cores: each thread has places of 16 bytes in
// shared memory that nobody else touches, so that nobody waits for anybody. The first are asked for before the block
// meets others: weights depend on nothing.
#pragma once

#include "baton/unit/cuda/kernels/mma_weights.cuh"
#include "baton/unit/cuda/mma_layout.h"

namespace baton::cuda {

// What blocks share out: units of 16 rows of weights, A of mma: of one matrix, or 8 of a gate and the 8 of its up.
struct MmaUnits {
  bool pairs;
  int spans, slices_log2;

  __device__ __forceinline__ explicit MmaUnits(const Instruction& in)
      : pairs(in.product.has(ProductShares::kPairs)), spans(in.product.spans), slices_log2(in.product.slices_log2) {}
  __device__ int each_log2() const { return pairs ? 3 : 4; }
  // Units that a block multiplies at a time, and which of them the warp has, and its slice of the spans.
  __device__ int slices() const { return 1 << slices_log2; }
  __device__ int teams() const { return kWarps >> slices_log2; }
  __device__ int team() const { return static_cast<int>(warp()) & (teams() - 1); }
  __device__ int slice() const { return static_cast<int>(warp()) >> (kWarpsLog2 - slices_log2); }
  // The matrix and the first of its rows.
  __device__ int2 find(const Instruction& in, int unit) const {
    int matrix = 0;
    for (; !pairs && matrix + 1 < in.matrices; ++matrix) {
      const int units = (in.matrix[matrix].rows + 15) / 16;
      if (unit < units) break;
      unit -= units;
    }
    return {matrix, unit << each_log2()};
  }
  // Behind a matrix's end its last row.
  __device__ MmaLines lines(const Instruction& in, int unit) const {
    const int2 where = find(in, unit);
    const int own = static_cast<int>(lane()) / 4;
    const Matrix* const first = &in.matrix[where.x];
    const Matrix* const second = pairs ? first + 1 : first;
    const int one = min(where.y + own, first->rows - 1), other = min(where.y + own + (pairs ? 0 : 8), second->rows - 1);
    return {{first, second}, {row_at(*first, one), row_at(*second, other)}};
  }
  // Sums of rows `at` of a unit's 16 and, of pairs, at + 8.
  __device__ __forceinline__ void put(const Instruction& in, int unit, int at_row, int64_t row, float sum,
                                      float other) const {
    const int2 where = find(in, unit);
    const int n = where.y + at_row, width = in.matrix[where.x].rows;
    if (n >= width) return;
    if (pairs) sum = (in.epilogue == Epilogue::kSwiGlu ? silu(sum) : gelu_of(sum, in.op.gelu)) * other;
    if (in.epilogue == Epilogue::kAdd) sum += row_of(in.z, width, row)[n];
    row_of(in.outs[where.x], width, row)[n] = sum;
  }
};

struct MmaPart {
  int begin, end;  // units
  int row, rows;   // of x
};

// The units and rows of a block, of `count` rows from `row` on (share_mma).
__device__ __forceinline__ MmaPart part_of(const Instruction& in, int row, int count) {
  const ProductShares& of = in.product;
  const int block = static_cast<int>(blockIdx.x);
  MmaPart part = {block * of.outputs + min(block, of.more), 0, row, count};
  part.end = part.begin + of.outputs + (block < of.more ? 1 : 0);
  const int tiles = (count + 7) / 8, parts = min(tiles, of.parts);
  if (parts == 1) return part;
  // Fewer units than blocks: `more` of them.
  const int unit = block / parts, own = block - unit * parts, first = tiles * own / parts;
  part.begin = min(unit, of.more);
  part.end = min(unit + 1, of.more);
  part.row += 8 * first;
  part.rows = min(count, 8 * (tiles * (own + 1) / parts)) - 8 * first;
  return part;
}

// The dynamic shared memory of a block that multiplies: rows of x and sums, then the ring.
struct MmaRoom {
  uint32_t before, depth;  // bytes before the ring; steps of a warp that may be on their way

  __device__ __forceinline__ MmaRoom() {
    const uint32_t all = dynamic_shared_bytes();
    depth = all >= kMmaDeepShared ? 2 : 1;
    before = all - depth * kMmaStepBytes;
  }
};

// The warp's steps of a product, round by round, a unit's spans in each; a span is Kind::kSteps of them.
template <class Kind>
struct MmaFeed {
  const Instruction& in;
  const MmaUnits& units;
  const MmaPart& part;
  const MmaRoom room;
  int base, span, step = 0;
  uint32_t turn = 0;
  MmaLines lines;

  __device__ __forceinline__ MmaFeed(const Instruction& of, const MmaUnits& shared, const MmaPart& own)
      : in(of), units(shared), part(own), base(own.begin), span(shared.slice()) {
    find();
  }
  // The places of step number `turn` of all, the first of them.
  __device__ __forceinline__ uint32_t place(uint32_t of) const {
    return room.before + (of % room.depth) * kMmaStepBytes + threadIdx.x * 16;
  }
  // The next step, as a group of copies; behind the last nothing.
  __device__ __forceinline__ void ask() {
    if (there()) {
      Kind::ask(lines, span, step, shared_address(block_shared()) + place(turn));
      advance();
    }
    ++turn;
    copies_end_group();
  }
  // What was asked for already.
  __device__ __forceinline__ void skip() {
    for (uint32_t i = 0; i < room.depth; ++i, ++turn) {
      if (there()) advance();
    }
  }

 private:
  __device__ __forceinline__ bool there() const { return base + units.team() < part.end; }
  __device__ __forceinline__ void find() {
    if (there()) lines = units.lines(in, base + units.team());
  }
  __device__ __forceinline__ void advance() {
    if (++step < Kind::kSteps) return;
    step = 0;
    span += units.slices();
    if (span < units.spans) return;
    span = units.slice();
    base += units.teams();
    find();
  }
};

}  // namespace baton::cuda
