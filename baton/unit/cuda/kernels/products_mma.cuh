// Do::kMultiply on tensor cores: any number of rows; matrices of one form (mma_layout.h).
//
// A unit is 16 rows of weights, A of mma: of one matrix, or 8 of a gate and the 8 of its up. Tiles of 8 rows of x are
// B. A block has a contiguous part of the units and all rows of x, 64 at a time; where there are fewer units than
// blocks, a part of the rows. `slices` warps, a span of columns each in turn, share a unit: their sums are added in
// order. What a row sums, in which order, is a matter of the instruction alone: neither of the rows beside it nor of
// the number of blocks.
#pragma once

#include "baton/unit/cuda/kernels/mma_weights.cuh"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {

inline constexpr int kMmaWarps = kThreads / 32;
inline constexpr int kSumStride = 20;  // of 16 rows of weights, for the banks' sake
inline constexpr uint32_t kSumBytes = kMmaWarps * 8 * kSumStride * sizeof(float);  // of a tile

// What blocks share out.
struct MmaUnits {
  bool pairs;
  int count, spans, slices;

  __device__ explicit MmaUnits(const Instruction& in)
      : pairs(in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu), count(0) {
    for (int i = 0; i < (pairs ? 1 : in.matrices); ++i) count += (in.matrix[i].rows + each() - 1) / each();
    spans = (in.matrix[0].pitch + kMmaSpan - 1) / kMmaSpan;
    // Of a card with 132 processors: so many that its warps have something to do.
    slices = count <= 132 ? 16 : count <= 264 ? 8 : count <= 528 ? 4 : count <= 1056 ? 2 : 1;
    while (slices > spans) slices /= 2;
  }
  __device__ int each() const { return pairs ? 8 : 16; }
  // The matrix and the first of its rows.
  __device__ int2 find(const Instruction& in, int unit) const {
    int matrix = 0;
    for (; !pairs && matrix + 1 < in.matrices; ++matrix) {
      const int units = (in.matrix[matrix].rows + 15) / 16;
      if (unit < units) break;
      unit -= units;
    }
    return {matrix, unit * each()};
  }
  // Behind a matrix's end its last row.
  __device__ MmaLines lines(const Instruction& in, int unit) const {
    const int2 where = find(in, unit);
    const int own = static_cast<int>(lane()) / 4;
    const Matrix* const first = &in.matrix[where.x];
    const Matrix* const second = pairs ? first + 1 : first;
    const int one = min(where.y + own, first->rows - 1), other = min(where.y + own + (pairs ? 0 : 8), second->rows - 1);
    return {{first, second}, {row_at(*first, one), row_at(*second, other)}, {one, other}};
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

// The sums of a round, of units from `base` on: a warp has those of unit base + team over its slice.
template <int kTiles, class Rows>
__device__ __forceinline__ void finish_units(const Instruction& in, const MmaUnits& units, const MmaPart& part,
                                             const Rows& x, float* partial, int base, const float (&sums)[kTiles][4]) {
  constexpr int kAll = 8 * kTiles;
  const int teams = kMmaWarps / units.slices;
  const int column = static_cast<int>(lane() & 3) * 2;
  float* const own = partial + (static_cast<int>(warp()) * kAll + column) * kSumStride + static_cast<int>(lane()) / 4;
  __syncthreads();  // planes are read, and the sums before
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile * 8 >= x.rows) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) own[(tile * 8 + i % 2) * kSumStride + i / 2 * 8] = sums[tile][i];
  }
  if (base == part.begin) x.finish();
  __syncthreads();
  const int each = units.each(), count = min(teams, part.end - base) * x.rows * each;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int of = i & (each - 1), r = i / each % x.rows, of_team = i / each / x.rows;
    float sum = 0, other = 0;
    for (int slice = 0; slice < units.slices; ++slice) {
      const float* const from = partial + ((slice * teams + of_team) * kAll + r) * kSumStride + of;
      sum += from[0];
      if (units.pairs) other += from[8];
    }
    const float by = x.facts.factors[r];
    units.put(in, base + of_team, of, x.row + r, __fmul_rn(by, sum), __fmul_rn(by, other));
  }
}

template <class Kind, int kTiles>
__device__ __noinline__ void multiply_part(const Instruction& in, const MmaPart& part, uint32_t room) {
  // By a name, not by a pointer: the compiler then knows what memory it is.
  extern __shared__ __align__(128) unsigned char mma_shared[];
  is_shared(&in);
  const MmaUnits units(in);
  int stage = kMmaWarps;
  while (stage > 1 && (static_cast<uint32_t>(stage * kTiles) * kSpanBytes > room || stage / 2 >= units.spans))
    stage /= 2;
  const MmaRows<kTiles, Kind::kGroups> x = {in,
                                            part.row,
                                            part.rows,
                                            units.spans,
                                            stage,
                                            *reinterpret_cast<RowFacts*>(mma_shared),
                                            mma_shared + sizeof(RowFacts)};
  const int teams = kMmaWarps / units.slices;
  const int team = static_cast<int>(warp()) % teams, slice = static_cast<int>(warp()) / teams;
  // Where there is room, rows of x stay for all rounds; else sums take their place.
  const uint32_t planes = static_cast<uint32_t>(stage * kTiles) * kSpanBytes;
  const bool stays = units.spans <= stage && planes + kTiles * kSumBytes <= room;
  float* const partial = reinterpret_cast<float*>(x.planes + (stays ? planes : 0));
  __syncthreads();
  x.begin();
  for (int base = part.begin; base < part.end; base += teams) {
    const bool works = base + team < part.end;
    const MmaLines lines = units.lines(in, works ? base + team : base);
    float sums[kTiles][4] = {};
    MmaRaw raw;
    int span = slice;
    if (works) Kind::template load<kTiles>(lines, span, raw);
    for (int first = 0; first < units.spans; first += stage) {
      if (base == part.begin || !stays) {
        __syncthreads();
        x.put(first);
        __syncthreads();
      }
      const int end = min(units.spans, first + stage);
#pragma unroll 1
      for (; works && span < end; span += units.slices)
        Kind::template multiply<kTiles>(sums, lines, raw, x, span, span + units.slices);
    }
    finish_units<kTiles>(in, units, part, x, partial, base, sums);
  }
}

template <class Kind>
__device__ __forceinline__ void multiply_kind(const Instruction& in, const MmaPart& part, uint32_t room) {
  if (part.rows <= 8) return multiply_part<Kind, 1>(in, part, room);
  if (part.rows <= 16) return multiply_part<Kind, 2>(in, part, room);
  if (part.rows <= 32) return multiply_part<Kind, 4>(in, part, room);
  multiply_part<Kind, kMmaTiles>(in, part, room);
}

// The units and rows of a block, of `count` rows from `row` on.
__device__ __forceinline__ MmaPart part_of(const MmaUnits& units, int row, int count, uint32_t block, uint32_t blocks) {
  const int tiles = (count + 7) / 8, parts = max(1, min(tiles, static_cast<int>(blocks) / units.count));
  MmaPart part = {0, 0, row, count};
  if (parts == 1) {
    part.begin = static_cast<int>(static_cast<uint32_t>(units.count) * block / blocks);
    part.end = static_cast<int>(static_cast<uint32_t>(units.count) * (block + 1) / blocks);
    return part;
  }
  const int own = static_cast<int>(block) % parts, first = tiles * own / parts;
  part.begin = static_cast<int>(block) / parts;
  part.end = min(part.begin + 1, units.count);
  part.row += 8 * first;
  part.rows = min(count, 8 * (tiles * (own + 1) / parts)) - 8 * first;
  return part;
}

// `bytes` of the block's dynamic shared memory, from its begin.
__device__ __forceinline__ void multiply_mma(const Instruction& in, int rows, uint32_t block, uint32_t blocks,
                                             uint32_t bytes) {
  const MmaUnits units(in);
  const uint32_t room = bytes - static_cast<uint32_t>(sizeof(RowFacts));
  int most = kMmaTiles;
  while (most > 1 && static_cast<uint32_t>(most) * kSumBytes > room) most /= 2;
  for (int row = 0; row < rows; row += 8 * most) {
    const MmaPart part = part_of(units, row, min(rows - row, 8 * most), block, blocks);
    if (part.begin >= part.end) continue;
    if (in.matrix[0].form == Form::kBF16) {
      multiply_kind<MmaPlain>(in, part, room);
    } else {
      multiply_kind<MmaSplit>(in, part, room);
    }
  }
}

// What a block is the first to need of a product's weights, to the second level of cache.
__device__ __forceinline__ void fetch_units(const Instruction& in, int rows, uint32_t block, uint32_t blocks) {
  constexpr int kLines = 2;  // of a thread
  const MmaUnits units(in);
  const MmaPart part = part_of(units, 0, min(rows, 8 * kMmaTiles), block, blocks);
  int left = kLines, before = 0;
  for (int i = 0; i < in.matrices && left > 0; ++i) {
    const Matrix& matrix = in.matrix[i];
    const int count = (matrix.rows + units.each() - 1) / units.each();
    const int begin = max(part.begin - before, 0), end = min(part.end - before, count);
    if (!units.pairs) before += count;
    if (begin >= end) continue;
    const int64_t row_bytes = matrix.row_bytes, first = begin * units.each() * row_bytes;
    const int64_t last = min(end * units.each(), matrix.rows) * row_bytes;
    int64_t byte = first + static_cast<int64_t>(threadIdx.x) * 128;
    for (; byte < last && left > 0; --left, byte += kThreads * 128)
      fetch_line(at<const unsigned char>(matrix.values) + byte);
  }
}

}  // namespace baton::cuda
