// Rows as products take them: norms, gates, rounding.
#pragma once

#include "baton/unit/cuda/kernels/rows.cuh"
#include "baton/unit/cuda/rows_geometry.h"

namespace baton::cuda {
namespace rows {

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
        v[k] *= sigmoid(
            group.y[instruction.op.width <= 1 ? group.first + i + k : (group.first + i + k) / instruction.op.width]);
        break;
    }
  }
}

template <int V, bool kBlock>
__device__ void prepare_group(const Instruction& instruction, int64_t row, int32_t first, int32_t count,
                              const Team<kBlock>& team) {
  const bool norm = norms(instruction);
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

// Four values of a row whose norm this is the factor of, and their scales.
template <bool kBf16>
__device__ __forceinline__ void put_normed(const Instruction& instruction, int64_t row, int32_t i,
                                           const float (&from)[4], const float (&by)[4], float factor) {
  float v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = from[k] * factor * by[k];
  if constexpr (kBf16) {
    store<4>(at<__nv_bfloat16>(instruction.out) + row * pitch_of(instruction.x_width) + i, v);
  } else {
    store<4>(row_of(instruction.out, instruction.x_width, row) + i, v);
  }
}

}  // namespace rows

// Whole rows with a norm of roots of squares: four warps have a row, and what each thread reads at once it keeps. They
// add as a block's threads would, each for four of them. kScalesFirst: scales come with the values, not when these are
// summed; it takes registers.
template <bool kBf16, bool kScalesFirst>
__device__ inline void prepare_rows(const Instruction& instruction, int32_t count, uint32_t block, uint32_t blocks,
                                    float* partial) {
  constexpr int kTeamWarps = kRowWarps, kTeams = kWarps / kTeamWarps, kEach = kWarps / kTeamWarps, kWide = 4 * kThreads;
  const auto team = static_cast<int32_t>(warp() / kTeamWarps), own = static_cast<int32_t>(warp() % kTeamWarps);
  const int32_t width = instruction.x_width;
  float* const sums = partial + team * kWarps;
  // The first of a thread of the block that this one stands in for.
  const auto first = [&](int k) { return ((own + k * kTeamWarps) * 32 + static_cast<int32_t>(lane())) * 4; };
  for (int32_t begin = static_cast<int32_t>(block) * kTeams; begin < count;
       begin += static_cast<int32_t>(blocks) * kTeams) {
    const int32_t row = min(begin + team, count - 1);
    const float* const x = row_of(instruction.x, width, row);
    const auto scales = [&] { return at<const float>(instruction.vectors[0]); };
    float kept[kEach][4], by[kScalesFirst ? kEach : 1][4];
    float sum[kEach] = {};
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
#pragma unroll
      for (int j = 0; j < 4; ++j) kept[k][j] = 0;
      if (first(k) >= width) continue;
      rows::load<4>(x + first(k), kept[k]);
      if constexpr (kScalesFirst) rows::load<4>(scales() + first(k), by[k]);
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[k] = fmaf(kept[k][j], kept[k][j], sum[k]);
#pragma unroll 1
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
      if (first(k) < width) {
        float(&scale)[4] = by[kScalesFirst ? k : 0];
        if constexpr (!kScalesFirst) rows::load<4>(scales() + first(k), scale);
        rows::put_normed<kBf16>(instruction, row, first(k), kept[k], scale, factor);
      }
#pragma unroll 1
      for (int32_t i = first(k) + kWide; i < width; i += kWide) {
        float v[4], scale[4];
        rows::load<4>(x + i, v);
        rows::load<4>(scales() + i, scale);
        rows::put_normed<kBf16>(instruction, row, i, v, scale, factor);
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
  const int32_t width = instruction.x_width, group = group_width(instruction);
  const int64_t groups = (width + group - 1) / group, units = groups * count;
  if (group > kWarpGroup) {
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
  if (has_whole_rows(instruction)) {
    if (instruction.to_bf16) {
      prepare_rows<true, false>(instruction, count, block, blocks, partial);
    } else {
      prepare_rows<false, false>(instruction, count, block, blocks, partial);
    }
  } else if (instruction.x_width % 4 == 0 && (!norms(instruction) || instruction.op.width % 4 == 0)) {
    prepare<4>(instruction, count, block, blocks, partial);
  } else {
    prepare<1>(instruction, count, block, blocks, partial);
  }
  meet();  // behind the readers of the last sum
}

// What is launched by itself has kernels of its own where it has_whole_rows or has_gated_groups: fewer registers.
__device__ inline void do_prepare_rows(const Instruction& instruction, const Pass& pass, uint32_t block,
                                       uint32_t blocks, unsigned char* shared) {
  float* const partial = reinterpret_cast<float*>(shared);
  const int32_t count = rows::count_of(instruction, pass);
  if (instruction.to_bf16) return prepare_rows<true, true>(instruction, count, block, blocks, partial);
  prepare_rows<false, true>(instruction, count, block, blocks, partial);
}
// Of has_gated_groups: lanes have four values of a group, and groups are read before the first is normed.
template <bool kBf16>
__device__ inline void prepare_gated(const Instruction& instruction, int32_t count, uint32_t block, uint32_t blocks) {
  constexpr int kGroup = kGatedGroup, kEach = kGatedGroups;
  const int32_t width = instruction.x_width, groups = width / kGroup, own = static_cast<int32_t>(lane()) * 4;
  const int32_t units = groups * count;
  const auto* const x = at<const float>(instruction.x) + own;
  const auto* const y = at<const float>(instruction.y) + own;
  const int64_t x_pitch = pitch_of(width), y_pitch = pitch_of(instruction.y_width);
  const float eps = instruction.op.eps;
  const Address out = instruction.out;
  float scale[4];
  rows::load<4>(at<const float>(instruction.vectors[0]) + own, scale);
  const auto first = static_cast<int32_t>(block * kWarps + warp()) * kEach;
  for (int32_t begin = first; begin < units; begin += static_cast<int32_t>(blocks * kWarps) * kEach) {
    int32_t row = begin / groups, group = begin % groups;
    float v[kEach][4], gates[kEach][4];
    int64_t to[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      to[k] = -1;
      if (begin + k >= units) break;
      rows::load<4>(x + row * x_pitch + group * kGroup, v[k]);
      rows::load<4>(y + row * y_pitch + group * kGroup, gates[k]);
      to[k] = row * x_pitch + group * kGroup + own;
      if (++group == groups) group = 0, ++row;
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (to[k] < 0) break;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) sum = fmaf(v[k][j], v[k][j], sum);
      const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(kGroup) + eps);
#pragma unroll
      for (int j = 0; j < 4; ++j) v[k][j] = v[k][j] * factor * scale[j] * silu(gates[k][j]);
      if constexpr (kBf16) {
        rows::store<4>(at<__nv_bfloat16>(out) + to[k], v[k]);
      } else {
        rows::store<4>(at<float>(out) + to[k], v[k]);
      }
    }
  }
}
__device__ inline void do_prepare_gated(const Instruction& instruction, const Pass& pass, uint32_t block,
                                        uint32_t blocks, unsigned char*) {
  const int32_t count = rows::count_of(instruction, pass);
  if (instruction.to_bf16) return prepare_gated<true>(instruction, count, block, blocks);
  prepare_gated<false>(instruction, count, block, blocks);
}

}  // namespace baton::cuda
