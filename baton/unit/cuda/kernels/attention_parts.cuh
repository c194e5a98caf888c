// Attention of rows that decode: a unit has a part of the keys of one row and the query heads that share them, up to
// four. Parts of a row are joined in order, in kAttendJoin.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"
#include "baton/unit/cuda/mixers_geometry.h"

namespace baton::cuda {

__device__ __forceinline__ float no_score() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float capped(float score, float cap) {
  return cap != 0.0f ? cap * tanhf(quotient(score, cap)) : score;
}

// What of a row a unit has.
struct AttendUnit {
  int run, kv_head, head, heads;  // query heads from `head` on
  int part;
};

__device__ __forceinline__ AttendUnit attend_unit(const Op& op, int number, int part) {
  AttendUnit unit;
  const int shared_by = op.heads / op.kv_heads, sets = head_parts(op);
  unit.part = part;
  const int set = number % sets * kHeadsTogether;
  number /= sets;
  unit.kv_head = number % op.kv_heads;
  unit.run = number / op.kv_heads;
  unit.head = unit.kv_head * shared_by + set;
  unit.heads = min(kHeadsTogether, shared_by - set);
  return unit;
}

// Where its part of a head begins in scratch; in values.
__device__ __forceinline__ int64_t part_at(const Instruction& in, const AttendUnit& unit, int head) {
  return ((static_cast<int64_t>(unit.run) * in.op.heads + unit.head + head) * in.splits + unit.part) *
         part_values(in.op);
}

// The most that a run has of them.
__device__ __forceinline__ int most_parts(const Op& op, const Pass& pass, int splits) {
  int most = 1;
  for (int i = static_cast<int>(lane()); i < pass.runs; i += 32)
    most = max(most, key_parts(op, pass.run[i].start, splits).count);
  return static_cast<int>(__reduce_max_sync(kAll, static_cast<unsigned>(most)));
}

// Whether kAttendJoin has anything to do.
__device__ __forceinline__ bool has_parts(const Instruction& in, const Pass& pass) {
  return in.scratch != 0 && in.splits > 1 && most_parts(in.op, pass, in.splits) > 1;
}

// A thread's share of what a column of a head is in parts. An eighth of the block has every eighth part; a warp has all
// highest scores and sums.
struct PartsOfColumn {
  static constexpr int kWide = 64, kEighths = kThreads / kWide, kOfLane = (kPartsMax + 31) / 32;
  static_assert(kEighths == 8);
  float part[kOfLane][4], highest[kOfLane], sum[kOfLane];

  __device__ __forceinline__ static int eighth() { return static_cast<int>(threadIdx.x) / kWide; }
  // from(part, i): of what is there. All at once, as nothing of it depends on the rest.
  template <class From>
  __device__ __forceinline__ void load_facts(int width, int count, const From& from) {
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      const int i = 32 * k + static_cast<int>(lane());
      highest[k] = i < count ? from(i, width) : no_score();
      sum[k] = i < count ? from(i, width + 1) : 0.0f;
    }
  }
  template <class From>
  __device__ __forceinline__ void load_values(int width, int count, int column, const From& from) {
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = 32 * k + 8 * j + eighth();
        part[k][j] = i < count && column < width ? from(i, column) : 0.0f;
      }
    }
  }
  // By all threads of the block; the first eighth gets what all are together. `totals`: kThreads values.
  __device__ __forceinline__ float join(float* totals) {
    float most = highest[0], total = 0, value = 0;
#pragma unroll
    for (int k = 1; k < kOfLane; ++k) most = fmaxf(most, highest[k]);
    most = warp_max(most);
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      highest[k] = highest[k] == most ? 1.0f : expf(highest[k] - most);
      total = fmaf(highest[k], sum[k], total);
    }
    total = warp_sum(total);
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
#pragma unroll
      for (int j = 0; j < 4; ++j) value = fmaf(__shfl_sync(kAll, highest[k], 8 * j + eighth()), part[k][j], value);
    }
    totals[threadIdx.x] = value;
    meet();
    value = 0;
#pragma unroll
    for (int i = 0; i < kEighths; ++i) value += totals[i * kWide + static_cast<int>(threadIdx.x) % kWide];
    meet();
    return quotient(value, total);
  }
};

// Units: 64 values of a head of a run.
__device__ __noinline__ void do_attend_join(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                            unsigned char* shared) {
  constexpr int kWide = PartsOfColumn::kWide;
  const Op& op = in.op;
  const int wide = (op.width + kWide - 1) / kWide, units = pass.runs * op.heads * wide;
  if (!has_parts(in, pass)) return;
  for (int number = static_cast<int>(block); number < units; number += static_cast<int>(blocks)) {
    const int column = number % wide * kWide + static_cast<int>(threadIdx.x) % kWide, head = number / wide % op.heads;
    const int of = number / wide / op.heads;
    const Run& run = pass.run[of];
    if (run.decodes == 0 || run.rows == 0) continue;
    const int count = key_parts(op, run.start, in.splits).count;
    if (count == 1) continue;
    const int values = static_cast<int>(part_values(op));
    const float* const parts =
        at<const float>(in.scratch) + (static_cast<int64_t>(of) * op.heads + head) * in.splits * values;
    PartsOfColumn own;
    const auto from = [&](int i, int j) { return parts[i * values + j]; };
    own.load_values(op.width, count, column, from);
    own.load_facts(op.width, count, from);
    const float value = own.join(reinterpret_cast<float*>(shared));
    if (PartsOfColumn::eighth() == 0 && column < op.width)
      row_of(in.out, in.out_width, run.first_row)[head * op.width + column] = value;
  }
}

}  // namespace baton::cuda
