// Convolution and delta rule of the rows of many runs, where is_plain_delta says so. A unit is 128 columns of a head,
// all that most have: a warp has eight rows of the state, a lane four columns of each, in registers, and so queries and
// keys are convolved once. What the next unit needs is read while one is worked on. A row's bits are those of its
// position alone, but not those of delta.cuh.
#pragma once

#include "baton/unit/cuda/kernels/delta.cuh"

namespace baton::cuda {

inline constexpr int kManyColumns = 128, kManyKeys = 128;
inline constexpr int kManyRows = kManyKeys / kWarps;  // of a warp
static_assert(kManyRows == 8 && kThreads >= 2 * kManyKeys + kManyColumns && kThreads == 4 * kManyColumns);

struct DeltaMany {
  alignas(16) float q[kManyKeys], k[kManyKeys];  // zeros behind the head's
  float v[kManyColumns], by[kManyColumns];
  // Of each warp: S^T k, S^T q. Rows apart so that what eight columns and four warps read is in banks of its own.
  float sums[2][kWarps][kManyColumns + 8];
  float beta, decay, keys, queries, products;
};
inline constexpr uint32_t kDeltaManyShared = sizeof(DeltaMany);

// n / by for what is far below 2^20, without a division.
struct Divider {
  int by;
  float factor;
  __device__ explicit Divider(int of) : by(of), factor(1.0f / static_cast<float>(of)) {}
  __device__ __forceinline__ int quotient(int n) const {
    return static_cast<int>((static_cast<float>(n) + 0.5f) * factor);
  }
};

class DeltaOfMany {
 public:
  __device__ DeltaOfMany(const Instruction& in, const Pass& pass, DeltaMany& room)
      : in_(in),
        pass_(pass),
        room_(room),
        parts_((in.op.value_dim + kManyColumns - 1) / kManyColumns),
        heads_(in.op.heads),
        keys_(in.op.head_map == HeadMap::kGrouped ? in.op.heads / in.op.kv_heads : in.op.kv_heads) {}

  // wait(): until what the instruction before has written is there. Before that comes what it does not write.
  template <class Wait>
  __device__ __forceinline__ void run(int block, int blocks, Wait wait) {
    const int units = pass_.runs * heads_.by * parts_.by;
    Held one, other;
    ask(block, units, one);
    wait();
    ask_new(one);
#pragma unroll 1
    for (int number = block; number < units; number += 2 * blocks) {
      ask(number + blocks, units, other);
      ask_new(other);
      work(one);
      if (number + blocks >= units) break;
      ask(number + 2 * blocks, units, one);
      ask_new(one);
      work(other);
    }
  }

 private:
  // What a thread has of a unit: of the state; of a channel, or of what a head's decay is made of.
  struct Held {
    float4 state[kManyRows];
    float4 taps;
    float old[3];    // from the oldest on; rate, bias
    float input[2];  // of the channel; y, z
    int number;      // -1: none
  };
  struct Unit {
    int run, head, key_head, column;
    bool leads;
  };

  __device__ __forceinline__ Unit unit_of(int number) const {
    const int of_run = parts_.quotient(number);
    Unit unit;
    unit.column = (number - of_run * parts_.by) * kManyColumns;
    unit.run = heads_.quotient(of_run);
    unit.head = of_run - unit.run * heads_.by;
    const int key = keys_.quotient(unit.head);
    const bool grouped = in_.op.head_map == HeadMap::kGrouped;
    unit.key_head = grouped ? key : unit.head - key * keys_.by;
    unit.leads = unit.column == 0 && (grouped ? key * keys_.by : unit.key_head) == unit.head;
    return unit;
  }
  // Of the convolution: queries, keys, values, 128 threads each; -1: none.
  __device__ __forceinline__ int channel(const Unit& unit) const {
    const Op& op = in_.op;
    const int which = static_cast<int>(threadIdx.x) / 128, i = static_cast<int>(threadIdx.x) % 128;
    const int keys = op.kv_heads * op.key_dim;
    if (which < 2) return i < op.key_dim ? which * keys + unit.key_head * op.key_dim + i : -1;
    return which == 2 && unit.column + i < op.value_dim ? 2 * keys + unit.head * op.value_dim + unit.column + i : -1;
  }
  __device__ __forceinline__ static bool has_gates() { return threadIdx.x >= kThreads - 32; }
  __device__ __forceinline__ static int first_row() { return static_cast<int>(warp()) * kManyRows; }
  __device__ __forceinline__ bool has_columns(const Unit& unit) const {
    return unit.column + static_cast<int>(lane()) * 4 < in_.op.value_dim;
  }
  __device__ __forceinline__ float4* rows_of(const Unit& unit) const {
    return reinterpret_cast<float4*>(state_of(in_, pass_.run[unit.run], unit.head) + first_row() * in_.op.value_dim +
                                     unit.column + lane() * 4);
  }
  __device__ __forceinline__ float* ring_of(const Run& run, int channel) const {
    return at<float>(run.parts + in_.slot2.offset) + channel;
  }

  __device__ __forceinline__ void ask(int number, int units, Held& held) const {
    held.number = number < units ? number : -1;
    if (number >= units) return;
    const Unit unit = unit_of(number);
    const Run& run = pass_.run[unit.run];
    const int stride = in_.op.value_dim / 4;
    const float4* const rows = rows_of(unit);
#pragma unroll
    for (int i = 0; i < kManyRows; ++i) {
      const bool there = has_columns(unit) && first_row() + i < in_.op.key_dim;
      held.state[i] = there ? __ldcs(rows + i * stride) : make_float4(0, 0, 0, 0);
    }
    const int from = channel(unit);
    if (from >= 0) {
      const float* const ring = ring_of(run, from);
      held.taps = *reinterpret_cast<const float4*>(at<const float>(in_.vectors[2]) + int64_t{from} * 4);
#pragma unroll
      for (int k = 0; k < 3; ++k) held.old[k] = ring[int64_t{(run.start + 1 + k) & 3} * in_.x_width];
    } else if (has_gates()) {
      held.old[0] = at<const float>(in_.vectors[0])[unit.head];
      held.old[1] = at<const float>(in_.vectors[1])[unit.head];
    }
  }
  // What the instruction before has written.
  __device__ __forceinline__ void ask_new(Held& held) const {
    if (held.number < 0) return;
    const Unit unit = unit_of(held.number);
    const int row = pass_.run[unit.run].first_row, from = channel(unit);
    if (from >= 0) {
      held.input[0] = row_of(in_.x, in_.x_width, row)[from];
    } else if (has_gates()) {
      held.input[0] = row_of(in_.y, in_.y_width, row)[unit.head];
      held.input[1] = row_of(in_.z, in_.z_width, row)[unit.head];
    }
  }

  __device__ __forceinline__ void convolve(const Unit& unit, const Run& run, const Held& held) const {
    const int which = static_cast<int>(threadIdx.x) / 128, i = static_cast<int>(threadIdx.x) % 128;
    const int from = channel(unit);
    float sum = 0;
    if (from >= 0) {
      sum = silu(fmaf(held.taps.w, held.input[0],
                      fmaf(held.taps.z, held.old[2], fmaf(held.taps.y, held.old[1], held.taps.x * held.old[0]))));
      if (which == 2 || unit.leads) ring_of(run, from)[int64_t{run.start & 3} * in_.x_width] = held.input[0];
    }
    if (which == 0) room_.q[i] = sum;
    if (which == 1) room_.k[i] = sum;
    if (which == 2) room_.v[i] = sum;
  }
  // By a warp that convolves nothing: what all columns of the unit share.
  __device__ __forceinline__ void gates(const Held& held) const {
    if (lane() != 0) return;
    room_.beta = sigmoid(held.input[0]);
    room_.decay = expf(held.old[0] * softplus(held.input[1] + held.old[1]));
  }
  __device__ __forceinline__ void norms() const {
    const float4 q = reinterpret_cast<const float4*>(room_.q)[lane()];
    const float4 k = reinterpret_cast<const float4*>(room_.k)[lane()];
    const auto dot = [](const float4& a, const float4& b) {
      return warp_sum(fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x))));
    };
    const float keys = dot(k, k), queries = dot(q, q), products = dot(k, q);
    if (lane() == 0) room_.keys = keys, room_.queries = queries, room_.products = products;
  }

  __device__ __forceinline__ static void add(float4& sum, const float4& of, float by) {
    sum.x = fmaf(of.x, by, sum.x);
    sum.y = fmaf(of.y, by, sum.y);
    sum.z = fmaf(of.z, by, sum.z);
    sum.w = fmaf(of.w, by, sum.w);
  }
  // Of this warp's rows, with queries and keys as they come.
  __device__ __forceinline__ void sum(const Held& held, float (&keys)[kManyRows]) const {
    float4 by_keys = make_float4(0, 0, 0, 0), by_queries = by_keys;
#pragma unroll
    for (int i = 0; i < kManyRows; i += 4) {
      const float4 k = *reinterpret_cast<const float4*>(room_.k + first_row() + i);
      const float4 q = *reinterpret_cast<const float4*>(room_.q + first_row() + i);
      keys[i] = k.x, keys[i + 1] = k.y, keys[i + 2] = k.z, keys[i + 3] = k.w;
      const float queries[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        add(by_keys, held.state[i + j], keys[i + j]);
        add(by_queries, held.state[i + j], queries[j]);
      }
    }
    *reinterpret_cast<float4*>(&room_.sums[0][warp()][lane() * 4]) = by_keys;
    *reinterpret_cast<float4*>(&room_.sums[1][warp()][lane() * 4]) = by_queries;
  }
  // Four lanes have a column, and every fourth warp's sums of it.
  __device__ __forceinline__ void columns(const Unit& unit, const Run& run) const {
    const int column = static_cast<int>(threadIdx.x) / 4, part = static_cast<int>(threadIdx.x) % 4;
    float of[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float(*const sums)[kManyColumns + 8] = room_.sums[k] + part;
      of[k] = (sums[0][column] + sums[4][column]) + (sums[8][column] + sums[12][column]);
      of[k] += __shfl_xor_sync(kAll, of[k], 1);
      of[k] += __shfl_xor_sync(kAll, of[k], 2);
    }
    const DeltaFactors factors(in_.op, room_.keys, room_.queries, room_.products);
    const float by = factors.by(of[0], room_.decay, room_.beta, room_.v[column]);
    if (part != 0) return;
    room_.by[column] = by;
    if (unit.column + column < in_.op.value_dim)
      row_of(in_.out, in_.out_width, run.first_row)[unit.head * in_.op.value_dim + unit.column + column] =
          factors.out(of[1], room_.decay, by);
  }

  // Waits for all three times. What is written to shared memory is read before the next barrier but one.
  __device__ __forceinline__ void work(const Held& held) const {
    const Unit unit = unit_of(held.number);
    const Run& run = pass_.run[unit.run];
    convolve(unit, run, held);
    meet();
    if (has_gates()) gates(held);
    if (warp() == kWarps - 2) norms();
    float keys[kManyRows];
    sum(held, keys);
    meet();
    columns(unit, run);
    const float decay = room_.decay;
    meet();
    if (!has_columns(unit)) return;
    const float4 by = reinterpret_cast<const float4*>(room_.by)[lane()];
    const int stride = in_.op.value_dim / 4;
    float4* const rows = rows_of(unit);
#pragma unroll
    for (int i = 0; i < kManyRows; ++i) {
      const float4& old = held.state[i];
      if (first_row() + i < in_.op.key_dim)
        __stcs(rows + i * stride, make_float4(fmaf(keys[i], by.x, old.x * decay), fmaf(keys[i], by.y, old.y * decay),
                                              fmaf(keys[i], by.z, old.z * decay), fmaf(keys[i], by.w, old.w * decay)));
    }
  }

  const Instruction& in_;
  const Pass& pass_;
  DeltaMany& room_;
  const Divider parts_, heads_, keys_;
};

}  // namespace baton::cuda
