// The gated delta rule, token by token. A unit has some columns of the state of one value head, 16 in each group of
// four warps; a thread has four of them in some of the rows. Rows of prompts go by delta_chunk.cuh where that can be.
//
// What is summed in which order is the same in both kernels and of any number of groups: the bits of a row are those of
// its position alone.
#pragma once

#include "baton/unit/cuda/kernels/conv.cuh"
#include "baton/unit/cuda/kernels/delta_unit.cuh"
#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"
#include "baton/unit/cuda/mixers_geometry.h"

namespace baton::cuda {

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

__device__ __forceinline__ float delta_beta(const Instruction& in, int64_t row, int head) {
  return sigmoid(row_of(in.y, in.y_width, row)[head]);
}
// The logarithm of the decay, of a row's z.
__device__ __forceinline__ float decay_of(const Instruction& in, int head, float z) {
  const float rate = at<const float>(in.vectors[0])[head], bias = at<const float>(in.vectors[1])[head];
  return rate * softplus(z + bias);
}
__device__ __forceinline__ float delta_gate(const Instruction& in, int64_t row, int head) {
  return decay_of(in, head, row_of(in.z, in.z_width, row)[head]);
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
  __device__ __forceinline__ void sum(const float (&keys)[kRows], const float (&queries)[kRows],
                                      DeltaSums& sums) const {
    sum_columns(keys, queries, sums.columns);
    if (warp() < 4) sum_squares(keys, queries, sums.squares[warp()]);
  }
  // Sums over this warp's rows of the state, with keys and queries as they come. Lanes 4, 8, 16 apart are added in that
  // order; of what they add each keeps half, and so one of eight sums in the end.
  __device__ __forceinline__ void sum_columns(const float (&keys)[kRows], const float (&queries)[kRows],
                                              float (*columns)[kThreads / 32][kGroupColumns]) const {
    float4 by_keys = make_float4(0, 0, 0, 0), by_queries = by_keys;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      add(by_keys, value[i], keys[i]);
      add(by_queries, value[i], queries[i]);
    }
    const bool second = (lane() & 4) != 0, upper = (lane() & 8) != 0, odd = (lane() & 16) != 0;
    const float x = keep(second, by_keys.x, by_queries.x, 4), y = keep(second, by_keys.y, by_queries.y, 4);
    const float z = keep(second, by_keys.z, by_queries.z, 4), w = keep(second, by_keys.w, by_queries.w, 4);
    const float even_one = keep(upper, x, z, 8), odd_one = keep(upper, y, w, 8);
    columns[second ? 1 : 0][warp()][lane() % 4 * 4 + (upper ? 2 : 0) + (odd ? 1 : 0)] =
        keep(odd, even_one, odd_one, 16);
  }
  // Of keys and queries.
  __device__ __forceinline__ static void sum_squares(const float (&keys)[kRows], const float (&queries)[kRows],
                                                     float (&to)[4]) {
    float squares[3] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      squares[0] = fmaf(keys[i], keys[i], squares[0]);
      squares[1] = fmaf(queries[i], queries[i], squares[1]);
      squares[2] = fmaf(keys[i], queries[i], squares[2]);
    }
    const bool second = (lane() & 4) != 0, upper = (lane() & 8) != 0;
    const float outer = keep(second, squares[0], squares[2], 4);
    const float inner = squares[1] + __shfl_xor_sync(kAll, squares[1], 4);
    float own = keep(upper, outer, inner, 8);
    own += __shfl_xor_sync(kAll, own, 16);
    if ((lane() & 19) == 0) to[(second ? 2 : 0) + (upper ? 1 : 0)] = own;  // the last is nothing's
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
  // This and the other lane's sum of `first`, or of `second` where the lane is an upper one.
  __device__ __forceinline__ static float keep(bool upper, float first, float second, int other) {
    return (upper ? second : first) + __shfl_xor_sync(kAll, upper ? first : second, other);
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

  // Of what four warps summed.
  __device__ __forceinline__ DeltaFactors(const Op& op, const float (*squares)[4]) {
    float4 of[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) of[i] = *reinterpret_cast<const float4*>(squares[i]);
    key = rsqrtf((of[0].x + of[1].x) + (of[2].x + of[3].x) + op.eps);
    query = rsqrtf(((of[0].y + of[1].y) + (of[2].y + of[3].y) + op.eps) * static_cast<float>(op.key_dim));
    both = ((of[0].z + of[1].z) + (of[2].z + of[3].z)) * query;
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
__device__ __forceinline__ void delta_columns(const DeltaFactors& factors,
                                              const float (*columns)[kThreads / 32][kGroupColumns], const float (&v)[4],
                                              float decay, float beta, float (&by)[4], float (&out)[4]) {
  group_sums(columns[0], by);
  group_sums(columns[1], out);
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
    part.sum(keys, queries, shared.sums);
  }
  meet();
  if (active) {
    float v[4], by[4], outs[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = part.column() + j < unit.columns ? token.v[part.column() + j] : 0.0f;
    delta_columns(DeltaFactors(op, shared.sums.squares), shared.sums.columns, v, token.decay, token.beta, by, outs);
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
