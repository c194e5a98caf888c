// Attention of rows that decode: a unit has a part of the keys of one row and the query heads that share them, up to
// four. Parts of a row are joined in order, in kAttendJoin.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/mixers_geometry.h"

namespace baton::cuda {

__device__ __forceinline__ float no_score() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float capped(float score, float cap) {
  return cap != 0.0f ? cap * tanhf(score / cap) : score;
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

// The most that a run has of them.
__device__ __forceinline__ int most_parts(const Op& op, const Pass& pass, int splits) {
  int most = 1;
  for (int i = static_cast<int>(lane()); i < pass.runs; i += 32)
    most = max(most, key_parts(op.window, op.chunk, pass.run[i].start, splits).count);
  return static_cast<int>(__reduce_max_sync(kAll, static_cast<unsigned>(most)));
}

// Whether kAttendJoin has anything to do.
__device__ __forceinline__ bool has_parts(const Instruction& in, const Pass& pass) {
  return in.scratch != 0 && in.splits > 1 && most_parts(in.op, pass, in.splits) > 1;
}

}  // namespace baton::cuda
