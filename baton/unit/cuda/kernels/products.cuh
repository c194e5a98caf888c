// Do::kMultiply: products of matrices with a few rows, in plain arithmetic: what a decode step is made of. More rows go
// to products_mma.cuh.
//
// A block takes a contiguous part of the output rows. Rows of x come through the prologue into its shared memory, as
// f32 or, for codes, as two planes of 8-bit integers with a scale for each group of 32 (15 bits in all: the products
// with codes are exact integers, and x loses less than bf16 would). A warp multiplies a slice of the columns of up to
// kSet matrix rows at a time, so that their loads are in flight together. What a row sums, in which order, depends on
// the matrix alone: neither on the other rows of x nor on the number of blocks.
#pragma once

#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/kernels/integer_rows.cuh"
#include "baton/unit/cuda/kernels/products_mma.cuh"
#include "baton/unit/cuda/kernels/prologue.cuh"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {

inline constexpr int kTile = 4;  // rows of x at a time
// Matrix rows of a warp at a time: what its registers hold.
__host__ __device__ constexpr int set_of(int rows) { return rows == 1 ? 4 : 2; }
inline constexpr int kWarps = kThreads / 32;

// Warps that share a matrix row: short matrices would leave most idle.
__device__ __forceinline__ int slices_of(const Instruction& instruction, int columns) {
  int rows = 0;
  for (int i = 0; i < instruction.matrices; ++i) rows += instruction.matrix[i].rows;
  if (columns < 1024 || rows > 1536) return 1;
  return rows > 640 ? 2 : 4;
}

// Of 16 bytes of a dense row as f32.
template <Form kForm>
struct Dense;
template <>
struct Dense<Form::kF32> {
  static constexpr int kValues = 4;
  static __device__ __forceinline__ void widen(const uint32_t (&from)[4], float (&to)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(from[i]);
  }
};
template <>
struct Dense<Form::kBF16> {
  static constexpr int kValues = 8;
  static __device__ __forceinline__ void widen(const uint32_t (&words)[4], float (&to)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __uint_as_float(words[i] << 16);
      to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
};
template <>
struct Dense<Form::kF16> {
  static constexpr int kValues = 8;
  static __device__ __forceinline__ void widen(const uint32_t (&words)[4], float (&to)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      to[2 * i] = two.x, to[2 * i + 1] = two.y;
    }
  }
};

// Of a warp's set: where its matrix rows are, and how many of them there are.
template <int kSet>
struct RowSet {
  const Matrix* matrix[kSet];
  int row[kSet];
  int count = 0;

  // Of those in `left`, those that are stored as the first of them.
  __device__ uint32_t alike(uint32_t left) const {
    int kind = -1;
    uint32_t found = 0;
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      if ((left >> s & 1) == 0) continue;
      const int own = static_cast<int>(matrix[s]->form) * 256 + matrix[s]->bits;
      if (kind < 0) kind = own;
      if (own == kind) found |= 1u << s;
    }
    return found;
  }
  // The first of them.
  __device__ const Matrix& first(uint32_t among) const {
    const Matrix* found = matrix[0];
#pragma unroll
    for (int s = kSet - 1; s >= 0; --s) {
      if ((among >> s & 1) != 0) found = matrix[s];
    }
    return *found;
  }
};

// Sums of kSet matrix rows with kRows rows of x, over the columns of a slice; of each lane a part.
template <Form kForm, int kRows, int kSet>
__device__ __forceinline__ void multiply_dense(const RowSet<kSet>& set, uint32_t active, const float* xs, int x_stride,
                                               int first, int last, float (&sums)[kSet][kRows]) {
  constexpr int kValues = Dense<kForm>::kValues, kSpan = 32 * kValues, kHalves = kValues / 4;
  const int columns = set.matrix[0]->pitch;
  const uint8_t* rows[kSet];
#pragma unroll
  for (int s = 0; s < kSet; ++s) {
    rows[s] = at<uint8_t>(set.matrix[s]->values) + int64_t{set.row[s]} * set.matrix[s]->row_bytes;
  }
#pragma unroll(kRows == 1 ? 8 / kSet : 1)
  for (int span = first; span < last; ++span) {
    const int column = span * kSpan + static_cast<int>(lane()) * kValues;
    if (column >= columns) break;
    uint32_t loaded[kSet][4];
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      if ((active >> s & 1) != 0)
        load_words<4, Reading::kStreamed>(rows[s] + int64_t{column} * (16 / kValues), loaded[s]);
    }
    float x[kRows][kValues];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const float4 four =
            *reinterpret_cast<const float4*>(xs + r * x_stride + span * kSpan + h * 128 + static_cast<int>(lane()) * 4);
        x[r][4 * h] = four.x, x[r][4 * h + 1] = four.y, x[r][4 * h + 2] = four.z, x[r][4 * h + 3] = four.w;
      }
    }
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      if ((active >> s & 1) == 0) continue;
      float w[kValues];
      Dense<kForm>::widen(loaded[s], w);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kValues; ++i) sums[s][r] = fmaf(w[i], x[r][i], sums[s][r]);
      }
    }
  }
}

// As multiply_dense. A span is 32 groups, one for each lane.
template <int kBits, int kRows, int kSet>
__device__ __forceinline__ void multiply_codes(const RowSet<kSet>& set, uint32_t active, unsigned char* xs, int groups,
                                               int first, int last, float (&sums)[kSet][kRows]) {
#pragma unroll 1
  for (int span = first; span < last; ++span) {
    const int group = span * 32 + static_cast<int>(lane());
    if (group >= groups) break;
    Raw<kBits> raw[kSet];
    Scales scales[kSet];
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      if ((active >> s & 1) == 0) continue;
      raw[s] = load_raw<kBits, Reading::kStreamed>(row_at(*set.matrix[s], set.row[s]), groups, group);
      scales[s] = scales_of(*set.matrix[s], set.row[s], group);
    }
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      if ((active >> s & 1) == 0) continue;
      const Matrix& matrix = *set.matrix[s];
      Group<kBits> q = take_apart(raw[s]);
      if constexpr (kBits <= 4) {
        if (matrix.has_table) q = look_up(raw[s], lookup_of(matrix));
      }
      const float zero = matrix.has_table ? 0.0f : static_cast<float>(matrix.zero);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const IntegerRow x = integer_row(xs + r * integer_row_bytes(groups), groups);
        const float4 facts = x.facts[group];
        const float sum[2] = {facts.y, facts.z};
        float value = 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 high = x.chunks[half * groups + group], low = x.chunks[(2 + half) * groups + group];
          const uint32_t h[4] = {high.x, high.y, high.z, high.w}, l[4] = {low.x, low.y, low.z, low.w};
          int highs = 0, lows = 0;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            highs = __dp4a(static_cast<int>(q.words[4 * half + i]), static_cast<int>(h[i]), highs);
            lows = __dp4a(static_cast<int>(q.words[4 * half + i]), static_cast<int>(l[i]), lows);
          }
          const float product = static_cast<float>(256 * highs + lows) - zero * sum[half];
          value = fmaf(scales[s].d[half], product, value);
          value = fmaf(-scales[s].m[half], sum[half], value);
        }
        sums[s][r] = fmaf(facts.x, value, sums[s][r]);
      }
    }
  }
}

// What the blocks of an instruction share out: output rows of all matrices one after the other, or pairs of a gate's
// and an up's, so many to a set.
struct Outputs {
  bool pairs;
  int count;

  __device__ explicit Outputs(const Instruction& instruction)
      : pairs(instruction.epilogue == Epilogue::kSwiGlu || instruction.epilogue == Epilogue::kGeGlu), count(0) {
    for (int i = 0; i < (pairs ? 1 : instruction.matrices); ++i) count += instruction.matrix[i].rows;
  }
  // Where the part of a block begins: they are few enough that the product fits.
  __device__ int begin_of(uint32_t block, uint32_t blocks) const {
    return static_cast<int>(static_cast<uint32_t>(count) * block / blocks);
  }
  // The matrix and its row that output `index` is of; without pairs.
  __device__ static int2 find(const Instruction& instruction, int index) {
    int matrix = 0;
    while (matrix + 1 < instruction.matrices && index >= instruction.matrix[matrix].rows)
      index -= instruction.matrix[matrix++].rows;
    return {matrix, index};
  }
  template <int kSet>
  __device__ RowSet<kSet> set(const Instruction& instruction, int first, int last) const {
    RowSet<kSet> set;
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      const int index = first + (pairs ? s / 2 : s);
      const int2 where = index >= last ? int2{0, 0} : pairs ? int2{s % 2, index} : find(instruction, index);
      set.matrix[s] = &instruction.matrix[where.x];
      set.row[s] = where.y;
      if (index < last) set.count = s + 1;
    }
    return set;
  }
};

template <int kRows, int kSet>
__device__ __forceinline__ void multiply_set(const RowSet<kSet>& set, uint32_t active, unsigned char* xs, int slice,
                                             int slices, float (&sums)[kSet][kRows]) {
  const Matrix& matrix = set.first(active);
  const int span = matrix.form == Form::kF32 ? 128 : matrix.form == Form::kCodes ? 1024 : 256;
  const int spans = (matrix.pitch + span - 1) / span;
  const int first = slice * spans / slices, last = (slice + 1) * spans / slices;
  const int stride = (matrix.pitch + 255) / 256 * 256, groups = matrix.pitch / kGroup;
  const float* const floats = reinterpret_cast<const float*>(xs);
  switch (matrix.form) {
    case Form::kF32:
      return multiply_dense<Form::kF32, kRows, kSet>(set, active, floats, stride, first, last, sums);
    case Form::kF16:
      return multiply_dense<Form::kF16, kRows, kSet>(set, active, floats, stride, first, last, sums);
    case Form::kBF16:
      return multiply_dense<Form::kBF16, kRows, kSet>(set, active, floats, stride, first, last, sums);
    case Form::kCodes:
      break;
  }
  switch (matrix.bits) {
    case 8:
      return multiply_codes<8, kRows, kSet>(set, active, xs, groups, first, last, sums);
    case 6:
      return multiply_codes<6, kRows, kSet>(set, active, xs, groups, first, last, sums);
    case 5:
      return multiply_codes<5, kRows, kSet>(set, active, xs, groups, first, last, sums);
    case 4:
      return multiply_codes<4, kRows, kSet>(set, active, xs, groups, first, last, sums);
    case 3:
      return multiply_codes<3, kRows, kSet>(set, active, xs, groups, first, last, sums);
    case 2:
      return multiply_codes<2, kRows, kSet>(set, active, xs, groups, first, last, sums);
    default:
      return multiply_codes<1, kRows, kSet>(set, active, xs, groups, first, last, sums);
  }
}

// Shared memory for rows of x, and what lies before them: sums of slices, and of norms.
inline constexpr uint32_t kBeforeRows = 2048;
__host__ __device__ inline uint32_t staged_bytes(const Matrix& matrix, int rows) {
  const int stride = (matrix.pitch + 255) / 256 * 256;
  const uint32_t floats = static_cast<uint32_t>(stride) * sizeof(float);
  const uint32_t row = matrix.form == Form::kCodes ? static_cast<uint32_t>(matrix.pitch / kGroup) * 80 : floats;
  return kBeforeRows + static_cast<uint32_t>(rows) * row + (matrix.form == Form::kCodes ? floats : 0);
}

// Rows of x to shared memory, in the form that the matrices want. All of an instruction want the same: codes, f32
// (kDense32) or 16-bit values, whose lanes read 8 values as two words of 4 that lie 128 apart.
template <int kRows>
__device__ void stage_rows(const Instruction& instruction, int row, int rows, unsigned char* xs, float* scratch) {
  const Matrix& matrix = instruction.matrix[0];
  const int pitch = matrix.pitch, stride = (pitch + 255) / 256 * 256, groups = pitch / kGroup;
  const bool halves = matrix.form == Form::kF16 || matrix.form == Form::kBF16, codes = matrix.form == Form::kCodes;
  for (int r = 0; r < kRows; ++r) {
    float* const floats =
        reinterpret_cast<float*>(codes ? xs + kRows * integer_row_bytes(groups) : xs + r * stride * sizeof(float));
    __syncthreads();  // what was there is read
    const auto place = [&](int i) { return halves ? i / 256 * 256 + i % 8 / 4 * 128 + i % 256 / 8 * 4 + i % 4 : i; };
    const auto put = [&](int i, float value) { floats[place(i)] = value; };
    const auto put4 = [&](int i, const float4& four) { *reinterpret_cast<float4*>(floats + place(i)) = four; };
    for (int i = (r < rows ? instruction.x_width : 0) + static_cast<int>(threadIdx.x); i < stride; i += kThreads)
      put(i, 0);
    if (r < rows && !prologue_fours(instruction, row + r, scratch, put4))
      prologue_row(instruction, row + r, scratch, put);
    __syncthreads();
    if (!codes) continue;
    const IntegerRow to = integer_row(xs + r * integer_row_bytes(groups), groups);
    for (int group = static_cast<int>(warp()); group < groups; group += kWarps)
      round_group(floats + group * kGroup, to, group, groups);
  }
  __syncthreads();
}

__device__ __forceinline__ void store_output(const Instruction& instruction, const Outputs& outputs, int index,
                                             int64_t row, float product, float other) {
  if (outputs.pairs) {
    const float gate =
        instruction.epilogue == Epilogue::kSwiGlu ? silu(product) : gelu_of(product, instruction.op.gelu);
    row_of(instruction.outs[0], instruction.matrix[0].rows, row)[index] = gate * other;
    return;
  }
  const int2 where = Outputs::find(instruction, index);
  const int width = instruction.matrix[where.x].rows;
  if (instruction.epilogue == Epilogue::kAdd) product += row_of(instruction.z, width, row)[where.y];
  row_of(instruction.outs[where.x], width, row)[where.y] = product;
}

// Up to kRows rows of x from `row` on.
template <int kRows>
__device__ __noinline__ void multiply_rows(const Instruction& instruction, int row, int rows, uint32_t block,
                                           uint32_t blocks, unsigned char* shared) {
  constexpr int kSet = set_of(kRows);
  float* const partial = reinterpret_cast<float*>(shared);
  float* const scratch = partial + kWarps * kSet * kRows;
  unsigned char* const xs = shared + kBeforeRows;
  stage_rows<kRows>(instruction, row, rows, xs, scratch);
  const Outputs outputs(instruction);
  const int sets_of = outputs.pairs ? kSet / 2 : kSet;
  const int begin = outputs.begin_of(block, blocks), end = outputs.begin_of(block + 1, blocks);
  const int slices = slices_of(instruction, instruction.matrix[0].pitch);
  const int slice = static_cast<int>(warp()) % slices, team = static_cast<int>(warp()) / slices,
            teams = kWarps / slices;
  for (int base = begin; base < end; base += teams * sets_of) {
    const int rest = end - base;
    // Few outputs are spread over all teams.
    const int each = rest >= teams * sets_of ? sets_of : (rest + teams - 1) / teams;
    const int first = base + team * each, last = min(end, first + each);
    float sums[kSet][kRows] = {};
    const RowSet<kSet> set = outputs.set<kSet>(instruction, first, last);
    if (set.count == 1) {
      // More of the one row is on its way at a time.
      const RowSet<1> one = {{set.matrix[0]}, {set.row[0]}, 1};
      float sum[1][kRows] = {};
      multiply_set<kRows, 1>(one, 1, xs, slice, slices, sum);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[0][r] = sum[0][r];
    } else {
      for (uint32_t left = (1u << set.count) - 1; left != 0;) {
        const uint32_t active = set.alike(left);
        multiply_set<kRows, kSet>(set, active, xs, slice, slices, sums);
        left &= ~active;
      }
    }
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[s][r] = warp_sum(sums[s][r]);
        if (slices > 1 && lane() == 0) partial[(warp() * kSet + s) * kRows + r] = sums[s][r];
      }
    }
    if (slices > 1) {
      __syncthreads();
#pragma unroll
      for (int s = 0; s < kSet; ++s) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          sums[s][r] = 0;
          for (int i = 0; i < slices; ++i) sums[s][r] += partial[((team * slices + i) * kSet + s) * kRows + r];
        }
      }
      __syncthreads();
    }
    if (slice == 0) {
#pragma unroll
      for (int s = 0; s < kSet; ++s) {
        if (s >= set.count || (outputs.pairs && s % 2 == 1)) continue;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (r < rows && static_cast<int>(lane()) == s * kRows + r)
            store_output(instruction, outputs, first + (outputs.pairs ? s / 2 : s), row + r, sums[s][r],
                         s + 1 < kSet ? sums[s + 1][r] : 0.0f);
        }
      }
    }
  }
}

__device__ __forceinline__ void do_multiply(const Instruction& instruction, const Pass& pass, uint32_t block,
                                            uint32_t blocks, unsigned char* shared) {
  const int rows = instruction.wanted_only ? pass.rows_out : pass.rows;
  if (rows >= kMmaFrom && takes_mma(instruction)) return multiply_mma(instruction, rows, block, blocks, kSharedBytes);
  const bool fits = staged_bytes(instruction.matrix[0], kTile) <= kSharedBytes;
  if (rows > 1 && fits) {
    for (int row = 0; row < rows; row += kTile)
      multiply_rows<kTile>(instruction, row, min(kTile, rows - row), block, blocks, shared);
    return;
  }
  for (int row = 0; row < rows; ++row) multiply_rows<1>(instruction, row, 1, block, blocks, shared);
}

}  // namespace baton::cuda
