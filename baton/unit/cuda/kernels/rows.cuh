// Kinds that see one row at a time: embeddings, single values, rows that are picked; what prepare.cuh does them with.
#pragma once

#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {
namespace rows {

inline constexpr int32_t kQuads = kThreads;  // of single values, in a unit of work

__device__ __forceinline__ int32_t count_of(const Instruction& instruction, const Pass& pass) {
  return instruction.wanted_only ? pass.rows_out : pass.rows;
}
// The row of the pass that row `row` of an instruction is of.
__device__ __forceinline__ int32_t pass_row(const Instruction& instruction, const Pass& pass, int32_t row) {
  return instruction.wanted_only ? at<const int32_t>(pass.out_rows)[row] : row;
}
__device__ __forceinline__ const Run& run_of(const Pass& pass, int32_t pass_row) {
  return pass.run[pass.runs == 1 ? 0 : at<const int32_t>(pass.run_of_row)[pass_row]];
}
__device__ __forceinline__ int32_t position_of(const Instruction& instruction, const Pass& pass, int32_t row) {
  const int32_t of_pass = pass_row(instruction, pass, row);
  return pass.position(of_pass, run_of(pass, of_pass));
}
__device__ __forceinline__ float no_number() { return __int_as_float(0x7fffffff); }

// A value of a row of a matrix; no numbers where there is none.
__device__ __forceinline__ float value_or_none(const Matrix& matrix, int32_t row, int32_t column) {
  return row < 0 || row >= matrix.rows ? no_number() : value_at(matrix, row, column);
}

// V values at once: 4 where rows and groups allow it.
template <int V>
__device__ __forceinline__ void load(const float* from, float (&to)[V]) {
  if constexpr (V == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else {
    to[0] = from[0];
  }
}
template <int V>
__device__ __forceinline__ void store(float* to, const float (&from)[V]) {
  if constexpr (V == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    to[0] = from[0];
  }
}
template <int V>
__device__ __forceinline__ void store(__nv_bfloat16* to, const float (&from)[V]) {
  if constexpr (V == 4) {
    *reinterpret_cast<uint2*>(to) = make_uint2(bf16_pair(from[0], from[1]), bf16_pair(from[2], from[3]));
  } else {
    to[0] = __float2bfloat16_rn(from[0]);
  }
}

// The same sum in all threads of a warp, or of a block: in one order, whoever adds.
template <bool kBlock>
__device__ __forceinline__ float sum_of_team(float x, float* partial) {
  x = warp_sum(x);
  if constexpr (kBlock) {
    meet();  // behind the readers of the sum before
    if (lane() == 0) partial[warp()] = x;
    meet();
    x = 0;
    for (int32_t i = 0; i < kWarps; ++i) x += partial[i];
  }
  return x;
}

// One group, by a block or by a warp.
template <bool kBlock>
struct Team {
  float* partial;
  __device__ int32_t first() const { return kBlock ? threadIdx.x : lane(); }
  static constexpr int32_t kCount = kBlock ? kThreads : 32;

  // Of (x - from)^power.
  template <int V, int kPower>
  __device__ float sum(const float* x, int32_t count, float from) const {
    float sum = 0;
    for (int32_t i = first() * V; i < count; i += kCount * V) {
      float v[V];
      load<V>(x + i, v);
#pragma unroll
      for (int k = 0; k < V; ++k) sum = kPower == 1 ? sum + v[k] : fmaf(v[k] - from, v[k] - from, sum);
    }
    return sum_of_team<kBlock>(sum, partial);
  }
};

__device__ __forceinline__ float each_of(const Op& op, float x, float y, float factor) {
  switch (op.kind) {
    case OpKind::kSwiGlu:
      return silu(x) * y;
    case OpKind::kGeGlu:
      return gelu_of(x, op.gelu) * y;
    case OpKind::kGelu:
      return gelu_of(x, op.gelu);
    case OpKind::kAdd:
    case OpKind::kBias:
    case OpKind::kPosition:
      return x + y;
    case OpKind::kScale:
      return op.scale * x;
    case OpKind::kPositionScale:
      return x * factor;
    default:  // a kind of another instruction: what it leaves shows
      return no_number();
  }
}

// f(row, first of four values), for all fours of `count` rows of `pitch`.
template <class Function>
__device__ __forceinline__ void for_quads(int32_t count, int32_t pitch, uint32_t block, uint32_t blocks, Function f) {
  const uint32_t chunks = static_cast<uint32_t>(pitch / 4 + kQuads - 1) / kQuads;
  for (uint32_t unit = block; unit < chunks * count; unit += blocks) {
    const int32_t quad = static_cast<int32_t>(unit % chunks * kQuads + threadIdx.x);
    if (quad < pitch / 4) f(static_cast<int32_t>(unit / chunks), 4 * quad);
  }
}

}  // namespace rows

__device__ inline void do_embed(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                unsigned char*) {
  const int32_t count = rows::count_of(instruction, pass), width = instruction.out_width;
  for (int32_t r = static_cast<int32_t>(block); r < count; r += static_cast<int32_t>(blocks)) {
    const int32_t token = at<const int32_t>(pass.tokens)[rows::pass_row(instruction, pass, r)];
    float* const out = row_of(instruction.out, width, r);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < width; i += kThreads)
      out[i] = rows::value_or_none(instruction.matrix[0], token, i);
  }
}

__device__ inline void do_split_pairs(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                      unsigned char*) {
  const int32_t count = rows::count_of(instruction, pass), width = instruction.op.width;
  const int32_t values = instruction.op.heads * width;
  for (int32_t r = static_cast<int32_t>(block); r < count; r += static_cast<int32_t>(blocks)) {
    const float* const from = row_of(instruction.x, instruction.x_width, r);
    float* const first = row_of(instruction.out, instruction.out_width, r);
    float* const second = row_of(instruction.out2, instruction.out2_width, r);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < values; i += kThreads) {
      const float* const pair = from + i / width * 2 * width + i % width;
      first[i] = pair[0];
      second[i] = pair[width];
    }
  }
}

__device__ inline void do_each(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                               unsigned char*) {
  const Op& op = instruction.op;
  const int32_t width = instruction.out_width;
  const auto four = [&](int32_t r, int32_t i) {
    float x[4], y[4] = {}, factor = 1;
    rows::load<4>(row_of(instruction.x, width, r) + i, x);
    if (op.kind == OpKind::kPositionScale)
      factor = position_scale_of(int64_t{rows::position_of(instruction, pass, r)} + op.ahead, op.scale, op.window);
    if (op.kind == OpKind::kPosition || op.kind == OpKind::kBias) {
      const int32_t position = op.kind == OpKind::kPosition ? rows::position_of(instruction, pass, r) : 0;
#pragma unroll
      for (int32_t k = 0; k < 4; ++k) {
        if (i + k < width)
          y[k] = op.kind == OpKind::kBias ? at<const float>(instruction.vectors[0])[i + k]
                                          : rows::value_or_none(instruction.matrix[0], position, i + k);
      }
    } else if (instruction.y != 0) {
      rows::load<4>(row_of(instruction.y, width, r) + i, y);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = i + k < width ? rows::each_of(op, x[k], y[k], factor) : 0.0f;
    rows::store<4>(row_of(instruction.out, width, r) + i, x);
  };
  rows::for_quads(rows::count_of(instruction, pass), pitch_of(width), block, blocks, four);
}

__device__ inline void do_pick(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                               unsigned char*) {
  const int32_t width = instruction.x_width;
  const auto four = [&](int32_t r, int32_t i) {
    float x[4];
    rows::load<4>(row_of(instruction.x, width, at<const int32_t>(pass.out_rows)[r]) + i, x);
    rows::store<4>(row_of(instruction.out, width, r) + i, x);
  };
  rows::for_quads(pass.rows_out, pitch_of(width), block, blocks, four);
}

__device__ inline void do_cap(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                              unsigned char*) {
  const int32_t width = instruction.x_width;
  const auto four = [&](int32_t r, int32_t i) {
    float x[4];
    rows::load<4>(row_of(instruction.x, width, r) + i, x);
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = soft_cap_of(x[k], instruction.op.cap);
    rows::store<4>(row_of(instruction.out, width, r) + i, x);
  };
  rows::for_quads(pass.rows_out, pitch_of(width), block, blocks, four);
}

}  // namespace baton::cuda
