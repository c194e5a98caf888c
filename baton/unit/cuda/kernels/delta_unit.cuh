// What a block has of the delta rule at a time (delta.cuh): some columns of the state of a run's value head, and what
// one token brings to them.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/mixers_geometry.h"

namespace baton::cuda {

// In shared memory: what a token brings, as it comes.
struct alignas(16) DeltaToken {
  float q[kDeltaKeyDimMax], k[kDeltaKeyDimMax], v[4 * kGroupColumns];
  float beta, decay;
};
// And what is summed over a unit's part of the state.
struct DeltaSums {
  alignas(16) float columns[2][kThreads / 32][kGroupColumns];  // of each warp: S^T k, S^T q
  alignas(16) float squares[4][4];                             // of the first group's warps: k k, q q, k q
};
struct DeltaShared {
  DeltaToken token[2];
  DeltaSums sums;
};

// Of a head and the columns of a unit.
struct DeltaUnit {
  int run, head, key_head, column, columns;

  DeltaUnit() = default;
  __device__ DeltaUnit(const Op& op, int unit, int groups) {
    const int wide = groups * kGroupColumns, parts = (op.value_dim + wide - 1) / wide;
    column = unit % parts * wide;
    columns = min(wide, op.value_dim - column);
    head = unit / parts % op.heads;
    run = unit / parts / op.heads;
    key_head = key_head_of(op, head);
  }
  __device__ static int count(const Op& op, int runs, int groups) {
    const int wide = groups * kGroupColumns;
    return (op.value_dim + wide - 1) / wide * op.heads * runs;
  }
  // The first of the value heads that share a key head.
  __device__ bool leads(const Op& op) const {
    return op.head_map == HeadMap::kGrouped ? head % (op.heads / op.kv_heads) == 0 : head < op.kv_heads;
  }
  __device__ int channels(const Op& op) const { return 2 * op.key_dim + columns; }
  // Of the op's input: the channel that is the unit's channel c, queries first, then keys, then values.
  __device__ int channel(const Op& op, int c) const {
    const int keys = op.kv_heads * op.key_dim;
    if (c < op.key_dim) return key_head * op.key_dim + c;
    if (c < 2 * op.key_dim) return keys + key_head * op.key_dim + c - op.key_dim;
    return 2 * keys + head * op.value_dim + column + c - 2 * op.key_dim;
  }
  __device__ float* place(const Op& op, DeltaToken& token, int c) const {
    if (c < op.key_dim) return token.q + c;
    if (c < 2 * op.key_dim) return token.k + c - op.key_dim;
    return token.v + c - 2 * op.key_dim;
  }
};

}  // namespace baton::cuda
