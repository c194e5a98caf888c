// Weights on their way to the lanes that will multiply them on tensor cores: each thread has places of 16 bytes in
// shared memory that nobody else touches, so that nobody waits for anybody. None are asked for before blocks have met:
// what waits behind them, rows of x first, would come later than they are needed.
#pragma once

#include "baton/unit/cuda/kernels/mma_weights.cuh"
#include "baton/unit/cuda/mma_layout.h"

namespace baton::cuda {

inline constexpr int kMmaWarps = kThreads / 32;
inline constexpr int kSumStride = 20;  // of 16 rows of weights, for the banks' sake
inline constexpr uint32_t kSumBytes = kMmaWarps * 8 * kSumStride * sizeof(float);  // of a tile

// What blocks share out: units of 16 rows of weights, A of mma: of one matrix, or 8 of a gate and the 8 of its up.
// Where blocks would be left without one, a tile of rows of x has units of 8 rows, beside which A has zeros.
struct MmaUnits {
  bool pairs, halves;
  int spans, slices_log2;

  __device__ __forceinline__ MmaUnits(const Instruction& in, int rows_of_x)
      : pairs(in.product.has(ProductShares::kPairs)),
        halves(!pairs && in.product.parts > 1 && rows_of_x <= 8),
        spans(in.product.spans),
        slices_log2(in.product.slices_log2) {}
  __device__ int each_log2() const { return pairs || halves ? 3 : 4; }
  __device__ int units_of(const Matrix& matrix) const {
    return pairs ? (matrix.rows + 7) >> 3 : (matrix.rows + 15) >> 4 << (halves ? 1 : 0);
  }
  // Units that a block multiplies at a time, and which of them the warp has, and its slice of the spans.
  __device__ int slices() const { return 1 << slices_log2; }
  __device__ int teams() const { return kWarps >> slices_log2; }
  __device__ int team() const { return static_cast<int>(warp()) & (teams() - 1); }
  __device__ int slice() const { return static_cast<int>(warp()) >> (kWarpsLog2 - slices_log2); }
  // The matrix and the first of its rows.
  __device__ int2 find(const Instruction& in, int unit) const {
    int matrix = 0;
    for (; !pairs && matrix + 1 < in.matrices; ++matrix) {
      const int units = units_of(in.matrix[matrix]);
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
};

// Apart, as it is long and seldom.
__device__ __noinline__ float gelu_apart(float x, Gelu kind) { return gelu_of(x, kind); }

// What a thread puts down of a round: one output of a unit, of every `step`th row of x, and, where a product behind
// takes them, the same values as that does (Instruction::next). What there is to know of it is read once.
class MmaOutput {
 public:
  MmaOutput() = default;
  // The round's units are those from `base` on, as many as there are teams.
  __device__ __forceinline__ MmaOutput(const Instruction& in, const MmaUnits& units, int base, int end, int row) {
    const int thread = static_cast<int>(threadIdx.x), log2 = units.each_log2();
    const int team_log2 = 5 + units.slices_log2;  // of its threads
    of = thread & ((1 << log2) - 1);
    team = thread >> team_log2;
    step = 1 << (team_log2 - log2);
    first = thread >> log2 & (step - 1);
    epilogue_ = in.epilogue, gelu_ = in.op.gelu;
    const int unit = base + team;
    if (unit >= end) return;
    const int2 where = units.find(in, unit);
    const int width = in.matrix[where.x].rows, column = where.y + of;
    if (column >= width) return;
    pitch_ = pitch_of(width);
    const int64_t at_first = static_cast<int64_t>(row + first) * pitch_ + column;
    out_ = at<float>(in.outs[where.x]) + at_first;
    if (epilogue_ == Epilogue::kAdd) added_ = at<const float>(in.z) + at_first;
    if (in.next == 0) return;
    row_ = row + first;
    next_ = at<unsigned char>(in.next);
    next_column_ = PlaneColumn(column, in.next_groups);
    if (in.next_scales == 0) return;
    scale_ = at<const float>(in.next_scales)[column];
    squares_ = at<float>(in.next + squares_behind(pitch_ / kMmaSpan)) + at_first / 8;
  }

  int of = 0, team = 0;     // of the unit's rows of weights, and which unit
  int first = 0, step = 0;  // rows of x, from the part's first on

  // What is added to that of row first + i * step.
  __device__ __forceinline__ float added(int i, int rows) const {
    return added_ != nullptr && first + i * step < rows ? added_[i * (step * pitch_)] : 0.0f;
  }
  // The sum of that, and of pairs the other's. All lanes of a warp: eight have eight outputs of a row. kHandsOn,
  // scaled: whether there are Instruction::next and next_scales.
  template <bool kPairs, bool kHandsOn>
  __device__ __forceinline__ void put(int i, int rows, float sum, float other, float added, bool scaled) const {
    if constexpr (kPairs) {
      sum = (epilogue_ == Epilogue::kSwiGlu ? silu(sum) : gelu_apart(sum, gelu_)) * other;
    } else if (epilogue_ == Epilogue::kAdd) {
      sum += added;
    }
    const bool is_there = out_ != nullptr && first + i * step < rows;
    if (is_there) out_[i * (step * pitch_)] = sum;
    if constexpr (!kHandsOn) return;
    const float value = scaled ? __fmul_rn(sum, scale_) : sum, beside = __shfl_down_sync(kAll, value, 1);
    if (is_there && (of & 1) == 0) {
      const Split split = split_pair(value, beside);
      unsigned char* const to = next_ + next_column_.byte(row_ + i * step);
      *reinterpret_cast<uint32_t*>(to) = split.high;
      *reinterpret_cast<uint32_t*>(to + kLowBehind) = split.low;
    }
    if (!scaled) return;
    float squares = __fmul_rn(sum, sum);
    squares += __shfl_xor_sync(kAll, squares, 1);
    squares += __shfl_xor_sync(kAll, squares, 2);
    squares += __shfl_xor_sync(kAll, squares, 4);
    if (is_there && (of & 7) == 0) squares_[i * (step * pitch_ / 8)] = squares;
  }

 private:
  float* out_ = nullptr;  // or there is none
  const float* added_ = nullptr;
  unsigned char* next_ = nullptr;
  PlaneColumn next_column_;
  float* squares_ = nullptr;
  int pitch_ = 0, row_ = 0;
  float scale_ = 0;
  Epilogue epilogue_ = Epilogue::kNone;
  Gelu gelu_ = Gelu::kErf;
};

struct MmaPart {
  int begin, end;  // units
  int row, rows;   // of x
};

// The units and rows of a block, of `count` rows from `row` on (share_mma).
__device__ __forceinline__ MmaPart part_of(const Instruction& in, const MmaUnits& units, int row, int count) {
  const ProductShares& of = in.product;
  const int block = static_cast<int>(blockIdx.x);
  MmaPart part = {block * of.outputs + min(block, of.more), 0, row, count};
  part.end = part.begin + of.outputs + (block < of.more ? 1 : 0);
  if (units.halves) {
    part.begin = min(block, 2 * of.more), part.end = min(block + 1, 2 * of.more);
    return part;
  }
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

// The dynamic shared memory of a block that multiplies: rows of x and sums, then the ring, whose first step lies last.
inline constexpr uint32_t kMmaDepth = 4;
struct MmaRoom {
  uint32_t all, depth;  // steps of a warp that may be on their way: a power of two, at most kMmaDepth

  __device__ __forceinline__ MmaRoom() : all(dynamic_shared_bytes()), depth(all >= kMmaDeepShared ? 2 : 1) {}
  // Of a product of so many rows of x: of few there is room for more.
  __device__ __forceinline__ MmaRoom(const MmaUnits& units, int rows) : MmaRoom() {
    const uint32_t tiles = rows <= 8 ? 1 : 2;
    uint32_t spans = 1;
    while (static_cast<int>(spans) < units.spans) spans *= 2;
    if (depth == 2 && rows <= 16 &&
        kMmaFrontBytes + tiles * (spans * kSpanBytes + kSumBytes) + kMmaDepth * kMmaStepBytes <= all)
      depth = kMmaDepth;
  }
  __device__ __forceinline__ uint32_t before() const { return all - depth * kMmaStepBytes; }  // bytes before the ring
  __device__ __forceinline__ uint32_t place(uint32_t step) const {
    return all - ((step & (depth - 1)) + 1) * kMmaStepBytes;
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
      : in(of), units(shared), part(own), room(shared, own.rows), base(own.begin), span(shared.slice()) {
    find();
  }
  // The places of step number `turn` of all, the first of them.
  __device__ __forceinline__ uint32_t place(uint32_t of) const { return room.place(of) + threadIdx.x * 16; }
  // The next step, as a group of copies; behind the last nothing.
  __device__ __forceinline__ void ask() {
    if (there()) {
      Kind::ask(lines, span, step, shared_address(block_shared()) + place(turn));
      advance();
    }
    ++turn;
    copies_end_group();
  }
  // The first steps.
  __device__ __forceinline__ void begin() {
#pragma unroll 1
    for (uint32_t i = 0; i < room.depth; ++i) ask();
  }
  // Until the step that was asked for first, of those on their way, has come.
  __device__ __forceinline__ void wait() const {
    if (room.depth == 4) {
      copies_wait<3>();
    } else if (room.depth == 2) {
      copies_wait<1>();
    } else {
      copies_wait<0>();
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
