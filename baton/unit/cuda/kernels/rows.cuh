// Kinds that see one row at a time: embeddings, norms and gates, single values, rows that are picked.
#pragma once

#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {
namespace rows {

inline constexpr int32_t kWarpGroup = 512;   // values of a group that one warp norms; those of more have a block
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

// What a group of `count` values at `first` of a row becomes.
struct Group {
  const float* x;  // of the group, like all that follows
  const float* y;  // kGated; of kGate the row of gates
  int32_t first, count;
  float mean, factor;
};

template <int V>
__device__ __forceinline__ void change(const Instruction& instruction, const Group& group, int32_t i, float (&v)[V]) {
  const float* const scale = at<const float>(instruction.vectors[0]);
  const float* const shift = at<const float>(instruction.vectors[1]);
#pragma unroll
  for (int k = 0; k < V; ++k) {
    switch (instruction.prologue) {
      case Prologue::kNone:
        break;
      case Prologue::kRms:
        v[k] = v[k] * group.factor * scale[i + k];
        break;
      case Prologue::kLayer:
        v[k] = (v[k] - group.mean) * group.factor * scale[i + k] + shift[i + k];
        break;
      case Prologue::kGated:
        v[k] = v[k] * group.factor * scale[i + k] * silu(group.y[i + k]);
        break;
      case Prologue::kGate:
        v[k] *= sigmoid(group.y[(group.first + i + k) / max(instruction.op.width, 1)]);
        break;
    }
  }
}

template <int V, bool kBlock>
__device__ void prepare_group(const Instruction& instruction, int64_t row, int32_t first, int32_t count,
                              const Team<kBlock>& team) {
  const bool norm = instruction.prologue != Prologue::kNone && instruction.prologue != Prologue::kGate;
  Group group = {row_of(instruction.x, instruction.x_width, row) + first, nullptr, first, count, 0, 0};
  if (instruction.y != 0) group.y = row_of(instruction.y, instruction.y_width, row) + (norm ? first : 0);
  if (norm) {
    const float width = static_cast<float>(count);
    if (instruction.prologue == Prologue::kLayer) group.mean = team.template sum<V, 1>(group.x, count, 0) / width;
    group.factor = 1.0f / sqrtf(team.template sum<V, 2>(group.x, count, group.mean) / width + instruction.op.eps);
  }
  float* const out = row_of(instruction.out, instruction.x_width, row) + first;
  __nv_bfloat16* const rounded = at<__nv_bfloat16>(instruction.out) + row * pitch_of(instruction.x_width) + first;
  for (int32_t i = team.first() * V; i < count; i += Team<kBlock>::kCount * V) {
    float v[V];
    load<V>(group.x + i, v);
    change<V>(instruction, group, i, v);
    if (instruction.to_bf16) {
      store<V>(rounded + i, v);
    } else {
      store<V>(out + i, v);
    }
  }
  if (!instruction.to_bf16 || first + count < instruction.x_width) return;
  for (int32_t i = count + team.first(); first + i < pitch_of(instruction.x_width); i += Team<kBlock>::kCount)
    rounded[i] = __float2bfloat16_rn(0.0f);
}

// Four values of a row whose norm this is the factor of.
template <bool kBf16>
__device__ __forceinline__ void put_normed(const Instruction& instruction, int64_t row, int32_t i,
                                           const float (&from)[4], float factor) {
  float by[4], v[4];
  load<4>(at<const float>(instruction.vectors[0]) + i, by);
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = from[k] * factor * by[k];
  if constexpr (kBf16) {
    store<4>(at<__nv_bfloat16>(instruction.out) + row * pitch_of(instruction.x_width) + i, v);
  } else {
    store<4>(row_of(instruction.out, instruction.x_width, row) + i, v);
  }
}

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

// Whole rows with a norm of roots of squares: four warps have a row, and what each thread reads at once it keeps. They
// add as a block's threads would, each for four of them.
template <bool kBf16>
__device__ inline void prepare_rows(const Instruction& instruction, int32_t count, uint32_t block, uint32_t blocks,
                                    float* partial) {
  constexpr int kTeamWarps = 4, kTeams = kWarps / kTeamWarps, kEach = kWarps / kTeamWarps, kWide = 4 * kThreads;
  const auto team = static_cast<int32_t>(warp() / kTeamWarps), own = static_cast<int32_t>(warp() % kTeamWarps);
  const int32_t width = instruction.x_width;
  float* const sums = partial + team * kWarps;
  // The first of a thread of the block that this one stands in for.
  const auto first = [&](int k) { return ((own + k * kTeamWarps) * 32 + static_cast<int32_t>(lane())) * 4; };
  for (int32_t begin = static_cast<int32_t>(block) * kTeams; begin < count;
       begin += static_cast<int32_t>(blocks) * kTeams) {
    const int32_t row = min(begin + team, count - 1);
    const float* const x = row_of(instruction.x, width, row);
    float kept[kEach][4];
    float sum[kEach] = {};
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
#pragma unroll
      for (int j = 0; j < 4; ++j) kept[k][j] = 0;
      if (first(k) < width) rows::load<4>(x + first(k), kept[k]);
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[k] = fmaf(kept[k][j], kept[k][j], sum[k]);
      for (int32_t i = first(k) + kWide; i < width; i += kWide) {
        float v[4];
        rows::load<4>(x + i, v);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[k] = fmaf(v[j], v[j], sum[k]);
      }
      sum[k] = warp_sum(sum[k]);
    }
    meet();  // behind the readers of the sums before
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (lane() == 0) sums[own + k * kTeamWarps] = sum[k];
    }
    meet();
    float total = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) total += sums[i];
    if (begin + team >= count) continue;
    const float factor = 1.0f / sqrtf(total / static_cast<float>(width) + instruction.op.eps);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (first(k) < width) rows::put_normed<kBf16>(instruction, row, first(k), kept[k], factor);
      for (int32_t i = first(k) + kWide; i < width; i += kWide) {
        float v[4];
        rows::load<4>(x + i, v);
        rows::put_normed<kBf16>(instruction, row, i, v, factor);
      }
    }
    if constexpr (kBf16) {
      for (int32_t i = width + own * 32 + static_cast<int32_t>(lane()); i < pitch_of(width); i += kTeamWarps * 32)
        at<__nv_bfloat16>(instruction.out)[int64_t{row} * pitch_of(width) + i] = __float2bfloat16_rn(0.0f);
    }
  }
}

// Narrow groups have a warp each, wide ones and whole rows a block.
template <int V>
__device__ inline void prepare(const Instruction& instruction, int32_t count, uint32_t block, uint32_t blocks,
                               float* partial) {
  const bool norm = instruction.prologue != Prologue::kNone && instruction.prologue != Prologue::kGate;
  const int32_t width = instruction.x_width, group = norm && instruction.op.width > 0 ? instruction.op.width : width;
  const int64_t groups = (width + group - 1) / group, units = groups * count;
  if (group > rows::kWarpGroup) {
    for (int64_t unit = block; unit < units; unit += blocks) {
      const int32_t first = static_cast<int32_t>(unit % groups) * group;
      rows::prepare_group<V>(instruction, unit / groups, first, min(group, width - first), rows::Team<true>{partial});
    }
    return;
  }
  for (int64_t unit = int64_t{block} * kWarps + warp(); unit < units; unit += int64_t{blocks} * kWarps) {
    const int32_t first = static_cast<int32_t>(unit % groups) * group;
    rows::prepare_group<V>(instruction, unit / groups, first, min(group, width - first), rows::Team<false>{partial});
  }
}

__device__ inline void do_prepare(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                  unsigned char* shared) {
  const int32_t count = rows::count_of(instruction, pass);
  float* const partial = reinterpret_cast<float*>(shared);
  const bool norm = instruction.prologue != Prologue::kNone && instruction.prologue != Prologue::kGate;
  const bool whole = instruction.op.width == instruction.x_width && instruction.op.width > rows::kWarpGroup;
  if (instruction.prologue == Prologue::kRms && whole && instruction.x_width % 4 == 0) {
    if (instruction.to_bf16) {
      prepare_rows<true>(instruction, count, block, blocks, partial);
    } else {
      prepare_rows<false>(instruction, count, block, blocks, partial);
    }
  } else if (instruction.x_width % 4 == 0 && (!norm || instruction.op.width % 4 == 0)) {
    prepare<4>(instruction, count, block, blocks, partial);
  } else {
    prepare<1>(instruction, count, block, blocks, partial);
  }
  meet();  // behind the readers of the last sum
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
