// The gated delta rule, token by token. A unit has some columns of the state of one value head, 16 in each group of
// four warps; a thread has four of them in some of the rows. Rows of prompts go by delta_chunk.cuh where that can be.
//
// What is summed in which order is the same in both kernels and of any number of groups: the bits of a row are those of
// its position alone.
#pragma once

#include "baton/unit/cuda/kernels/conv.cuh"
#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"
#include "baton/unit/cuda/mixers_geometry.h"

namespace baton::cuda {

// In shared memory: what a token brings, as it comes.
struct DeltaToken {
  float q[kDeltaKeyDimMax], k[kDeltaKeyDimMax], v[4 * kGroupColumns];
  float beta, decay;
};
struct DeltaShared {
  DeltaToken token[2];
  alignas(16) float sums[2][kThreads / 32][kGroupColumns];  // of each warp: S^T k, S^T q
  float4 squares[kThreads / 32];                            // likewise: k k, q q, k q
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

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

__device__ __forceinline__ float delta_beta(const Instruction& in, int64_t row, int head) {
  return sigmoid(row_of(in.y, in.y_width, row)[head]);
}
// The logarithm of the decay.
__device__ __forceinline__ float delta_gate(const Instruction& in, int64_t row, int head) {
  const float rate = at<const float>(in.vectors[0])[head], bias = at<const float>(in.vectors[1])[head];
  return rate * softplus(row_of(in.z, in.z_width, row)[head] + bias);
}

// A thread's part of the state: rows first_row + 32 i of four columns. kWhole: all units have whole groups of
// kGroupColumns.
template <int kRows, bool kWhole>
struct DeltaPart {
  static_assert(32 * kRows <= kDeltaKeyDimMax);
  float4 value[kRows];

  __device__ __forceinline__ static int first_row() { return static_cast<int>(warp() % 4 * 8 + lane() / 4); }
  __device__ __forceinline__ static int column() {
    return static_cast<int>(warp() / 4 * kGroupColumns + lane() % 4 * 4);
  }

  // Calls four(i, at) for rows that are there with all four columns, or one(i, j, at) for the columns that are.
  template <class Value, class Four, class One>
  __device__ __forceinline__ static void each(Value* state, const Op& op, const DeltaUnit& unit, Four four, One one) {
    const int left = unit.columns - column(), stride = op.value_dim, rows = op.key_dim;
    Value* const from = state + first_row() * stride + unit.column + column();
    if (kWhole ? left >= 4 : left >= 4 && stride % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (first_row() + 32 * i < rows) four(i, from + 32 * i * stride);
      }
      return;
    }
    if constexpr (!kWhole) {
      // All of it unrolled: what has no fixed place among registers would go to memory.
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (j < left && first_row() + 32 * i < rows) one(i, j, from + 32 * i * stride + j);
        }
      }
    }
  }
  __device__ __forceinline__ void load(const float* state, const Op& op, const DeltaUnit& unit) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) value[i] = make_float4(0, 0, 0, 0);
    each(
        state, op, unit, [&](int i, const float* at) { value[i] = *reinterpret_cast<const float4*>(at); },
        [&](int i, int j, const float* at) {
          if (j == 0) value[i].x = *at;
          if (j == 1) value[i].y = *at;
          if (j == 2) value[i].z = *at;
          if (j == 3) value[i].w = *at;
        });
  }
  __device__ __forceinline__ void store(float* state, const Op& op, const DeltaUnit& unit) const {
    each(
        state, op, unit, [&](int i, float* at) { *reinterpret_cast<float4*>(at) = value[i]; },
        [&](int i, int j, float* at) {
          *at = j == 0 ? value[i].x : j == 1 ? value[i].y : j == 2 ? value[i].z : value[i].w;
        });
  }
  // Sums over this warp's rows of the state, with keys and queries as they come: to `shared`.
  __device__ __forceinline__ void sum(const float (&keys)[kRows], const float (&queries)[kRows],
                                      DeltaShared& shared) const {
    float4 by_keys = make_float4(0, 0, 0, 0), by_queries = by_keys, squares = by_keys;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      add(by_keys, value[i], keys[i]);
      add(by_queries, value[i], queries[i]);
      squares.x = fmaf(keys[i], keys[i], squares.x);
      squares.y = fmaf(queries[i], queries[i], squares.y);
      squares.z = fmaf(keys[i], queries[i], squares.z);
    }
#pragma unroll
    for (int o = 4; o < 32; o *= 2) {
      add_lane(by_keys, o);
      add_lane(by_queries, o);
      squares.x += __shfl_xor_sync(kAll, squares.x, o);
      squares.y += __shfl_xor_sync(kAll, squares.y, o);
      squares.z += __shfl_xor_sync(kAll, squares.z, o);
    }
    if (lane() >= 4) return;
    *reinterpret_cast<float4*>(&shared.sums[0][warp()][lane() * 4]) = by_keys;
    *reinterpret_cast<float4*>(&shared.sums[1][warp()][lane() * 4]) = by_queries;
    if (lane() == 0) shared.squares[warp()] = squares;
  }
  __device__ __forceinline__ void change(const float (&keys)[kRows], float decay, const float (&by)[4]) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      value[i].x = fmaf(keys[i], by[0], value[i].x * decay);
      value[i].y = fmaf(keys[i], by[1], value[i].y * decay);
      value[i].z = fmaf(keys[i], by[2], value[i].z * decay);
      value[i].w = fmaf(keys[i], by[3], value[i].w * decay);
    }
  }

 private:
  __device__ __forceinline__ static void add(float4& sum, const float4& of, float by) {
    sum.x = fmaf(of.x, by, sum.x);
    sum.y = fmaf(of.y, by, sum.y);
    sum.z = fmaf(of.z, by, sum.z);
    sum.w = fmaf(of.w, by, sum.w);
  }
  __device__ __forceinline__ static void add_lane(float4& sum, int other) {
    sum.x += __shfl_xor_sync(kAll, sum.x, other);
    sum.y += __shfl_xor_sync(kAll, sum.y, other);
    sum.z += __shfl_xor_sync(kAll, sum.z, other);
    sum.w += __shfl_xor_sync(kAll, sum.w, other);
  }
};

// This thread's four columns: what the four warps of its group summed.
__device__ __forceinline__ void group_sums(const float (*sums)[kGroupColumns], float (&to)[4]) {
  float4 of[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) of[i] = *reinterpret_cast<const float4*>(&sums[warp() / 4 * 4 + i][lane() % 4 * 4]);
  to[0] = (of[0].x + of[1].x) + (of[2].x + of[3].x);
  to[1] = (of[0].y + of[1].y) + (of[2].y + of[3].y);
  to[2] = (of[0].z + of[1].z) + (of[2].z + of[3].z);
  to[3] = (of[0].w + of[1].w) + (of[2].w + of[3].w);
}

// What squares make of the sums of a token: reciprocals of the norms of its keys and queries, the latter's with the
// scale of the op, and their product.
struct DeltaFactors {
  float key, query, both;

  __device__ __forceinline__ DeltaFactors(const Op& op, float keys, float queries, float products) {
    key = rsqrtf(keys + op.eps);
    query = rsqrtf((queries + op.eps) * static_cast<float>(op.key_dim));
    both = products * query;
  }
  // Of a column what keys are added to the state by, from S^T k and S^T q; and what comes out: with state S' behind the
  // token S'^T q = decay S^T q + (k q) by. So the state is read once.
  __device__ __forceinline__ float by(float of_keys, float decay, float beta, float v) const {
    return beta * fmaf(-decay, __fmul_rn(of_keys, key), v) * key;
  }
  __device__ __forceinline__ float out(float of_queries, float decay, float by) const {
    return fmaf(both, by, __fmul_rn(__fmul_rn(of_queries, query), decay));
  }
};

// Behind a barrier behind sum(), of this thread's four columns.
__device__ __forceinline__ void delta_columns(const Op& op, const DeltaShared& shared, const float (&v)[4], float decay,
                                              float beta, float (&by)[4], float (&out)[4]) {
  float4 squares[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) squares[i] = shared.squares[warp() / 4 * 4 + i];
  const DeltaFactors factors(op, (squares[0].x + squares[1].x) + (squares[2].x + squares[3].x),
                             (squares[0].y + squares[1].y) + (squares[2].y + squares[3].y),
                             (squares[0].z + squares[1].z) + (squares[2].z + squares[3].z));
  group_sums(shared.sums[0], by);
  group_sums(shared.sums[1], out);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    by[j] = factors.by(by[j], decay, beta, v[j]);
    out[j] = factors.out(out[j], decay, by[j]);
  }
}

// One token, which lies in shared memory and is seen by all. All threads call it; it waits for all twice. `out` is a
// row of the head's.
template <int kRows, bool kWhole>
__device__ __forceinline__ void delta_token(const Op& op, const DeltaUnit& unit, bool active,
                                            DeltaPart<kRows, kWhole>& part, const DeltaToken& token,
                                            DeltaShared& shared, float* out) {
  float keys[kRows];
  if (active) {
    float queries[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = part.first_row() + 32 * i;
      keys[i] = row < op.key_dim ? token.k[row] : 0.0f;
      queries[i] = row < op.key_dim ? token.q[row] : 0.0f;
    }
    part.sum(keys, queries, shared);
  }
  meet();
  if (active) {
    float v[4], by[4], outs[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = part.column() + j < unit.columns ? token.v[part.column() + j] : 0.0f;
    delta_columns(op, shared, v, token.decay, token.beta, by, outs);
    if (warp() % 4 == 0 && lane() < 4) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (part.column() + j < unit.columns) out[unit.column + part.column() + j] = outs[j];
      }
    }
    part.change(keys, token.decay, by);
  }
  meet();
}

__device__ __forceinline__ float* state_of(const Instruction& in, const Run& run, int head) {
  return at<float>(run.parts + in.slot.offset) + static_cast<int64_t>(head) * in.op.key_dim * in.op.value_dim;
}

// Rows of the runs that `all` or that decode, one after the other.
template <int kRows>
__device__ __forceinline__ void delta_units(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                            DeltaShared& shared) {
  const Op& op = in.op;
  const bool decoding_only = in_chunks(in);
  const int groups = column_groups(op, pass.runs, static_cast<int>(blocks));
  const int units = DeltaUnit::count(op, pass.runs, groups);
  const bool active = static_cast<int>(warp()) < 4 * groups;
  const int mine = kThreads - 1 - static_cast<int>(threadIdx.x);  // what comes is read by the last threads
  for (int number = static_cast<int>(block); number < units; number += static_cast<int>(blocks)) {
    const DeltaUnit unit(op, number, groups);
    const Run& run = pass.run[unit.run];
    if (run.rows == 0 || (decoding_only && run.decodes == 0)) continue;
    const int channels = unit.channels(op);
    float* const state = state_of(in, run, unit.head);
    DeltaPart<kRows, false> part;
    if (active) part.load(state, op, unit);
    const auto bring = [&](int t) {
      DeltaToken& token = shared.token[t & 1];
      const float* const x = row_of(in.x, in.x_width, run.first_row + t);
      for (int c = mine; c < channels; c += kThreads) *unit.place(op, token, c) = x[unit.channel(op, c)];
      if (mine == (channels & (kThreads - 1))) {
        token.beta = delta_beta(in, run.first_row + t, unit.head);
        token.decay = expf(delta_gate(in, run.first_row + t, unit.head));
      }
    };
    bring(0);
    meet();
    for (int t = 0; t < run.rows; ++t) {
      if (t + 1 < run.rows) bring(t + 1);
      delta_token(op, unit, active, part, shared.token[t & 1], shared,
                  row_of(in.out, in.out_width, run.first_row + t) + unit.head * op.value_dim);
    }
    if (active) part.store(state, op, unit);
    meet();
  }
}

__device__ __forceinline__ void do_delta(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                         unsigned char* shared) {
  DeltaShared& room = *reinterpret_cast<DeltaShared*>(shared);
  if (in.op.key_dim <= 128) {
    delta_units<4>(in, pass, block, blocks, room);
  } else {
    delta_units<8>(in, pass, block, blocks, room);
  }
}

// The convolution of one row, by the units that need its channels; one of them writes the ring's column. It sums as
// convolve does.
__device__ __forceinline__ void convolve_token(const Instruction& in, const Run& run, const DeltaUnit& unit,
                                               DeltaToken& token) {
  const Op& op = in.op;
  const int mine = kThreads - 1 - static_cast<int>(threadIdx.x), channels = unit.channels(op), taps = op.taps;
  const int column = ring_index(run.start, taps);
  const bool leads = unit.column == 0 && unit.leads(op);
#pragma unroll 1
  for (int c = mine; c < channels; c += kThreads) {
    const int from = unit.channel(op, c);
    float* const ring = at<float>(run.parts + in.slot2.offset) + from;
    const float* const weights = at<const float>(in.vectors[2]) + static_cast<int64_t>(from) * taps;
    const float input = row_of(in.x, in.x_width, run.first_row)[from];
    float sum = 0;
    int old = column + 1 == taps ? 0 : column + 1;
#pragma unroll 3
    for (int j = 0; j + 1 < taps; ++j) {
      sum = fmaf(weights[j], ring[static_cast<int64_t>(old) * in.x_width], sum);
      old = old + 1 == taps ? 0 : old + 1;
    }
    *unit.place(op, token, c) = silu(fmaf(weights[taps - 1], input, sum));
    if (c >= 2 * op.key_dim || leads) ring[static_cast<int64_t>(column) * in.x_width] = input;
  }
  if (mine == (channels & (kThreads - 1))) {
    token.beta = delta_beta(in, run.first_row, unit.head);
    token.decay = expf(delta_gate(in, run.first_row, unit.head));
  }
}

// The state of a unit, to the second level of cache.
__device__ __forceinline__ void fetch_state(const Instruction& in, const Pass& pass, int number, int groups) {
  const Op& op = in.op;
  const int row = static_cast<int>(threadIdx.x);
  if (number >= DeltaUnit::count(op, pass.runs, groups) || row >= op.key_dim) return;
  const DeltaUnit unit(op, number, groups);
  const float* const from = state_of(in, pass.run[unit.run], unit.head) + row * op.value_dim + unit.column;
  for (int i = 0; i < unit.columns; i += 32) fetch_line(from + i);
}

// While one is worked on, the state of the next unit comes nearer.
template <int kRows>
__device__ __forceinline__ void conv_delta_units(const Instruction& in, const Pass& pass, uint32_t block,
                                                 uint32_t blocks, DeltaShared& shared) {
  const Op& op = in.op;
  const int groups = column_groups(op, pass.runs, static_cast<int>(blocks));
  const int units = DeltaUnit::count(op, pass.runs, groups);
  const bool active = static_cast<int>(warp()) < 4 * groups;
  for (int number = static_cast<int>(block); number < units; number += static_cast<int>(blocks)) {
    const DeltaUnit unit(op, number, groups);
    const Run& run = pass.run[unit.run];
    float* const state = state_of(in, run, unit.head);
    DeltaPart<kRows, false> part;
    if (active) part.load(state, op, unit);
    fetch_state(in, pass, number + static_cast<int>(blocks), groups);
    convolve_token(in, run, unit, shared.token[0]);
    meet();
    delta_token(op, unit, active, part, shared.token[0], shared,
                row_of(in.out, in.out_width, run.first_row) + unit.head * op.value_dim);
    if (active) part.store(state, op, unit);
    meet();
  }
}

// Apart, so that it takes no registers from the other.
__device__ __noinline__ void conv_delta_wide(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                             DeltaShared& shared) {
  conv_delta_units<8>(in, pass, block, blocks, shared);
}

__device__ __forceinline__ void do_conv_delta(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                              unsigned char* shared) {
  DeltaShared& room = *reinterpret_cast<DeltaShared*>(shared);
  if (in.op.key_dim <= 128) return conv_delta_units<4>(in, pass, block, blocks, room);
  conv_delta_wide(in, pass, block, blocks, room);
}

}  // namespace baton::cuda
