// Convolution and delta rule of a step, where is_plain_delta says so, with the bits of delta.cuh. Whatever the
// instruction before does not write is read before it is waited for: the state, what the ring holds, taps, rates.
// Behind that is one barrier. A warp convolves what its own rows of the state are multiplied with, values and gates
// come from warps that have no columns where there are some.
#pragma once

#include "baton/unit/cuda/kernels/delta.cuh"

namespace baton::cuda {

// A thread's channel of a convolution of four taps.
struct DeltaChannel {
  float* ring = nullptr;  // null: none
  const float* x;
  float4 taps;
  float old[3];  // from the oldest on
  float input;

  // All but the new input.
  __device__ __forceinline__ void load(const Instruction& in, const Run& run, int channel) {
    ring = at<float>(run.parts + in.slot2.offset) + channel;
    x = row_of(in.x, in.x_width, run.first_row) + channel;
    taps = *reinterpret_cast<const float4*>(at<const float>(in.vectors[2]) + int64_t{channel} * 4);
#pragma unroll
    for (int k = 0; k < 3; ++k) old[k] = ring[int64_t{(run.start + 1 + k) & 3} * in.x_width];
  }
  __device__ __forceinline__ void read() {
    if (ring != nullptr) input = *x;
  }
  __device__ __forceinline__ float convolved() const {
    if (ring == nullptr) return 0.0f;
    return silu(fmaf(taps.w, input, fmaf(taps.z, old[2], fmaf(taps.y, old[1], taps.x * old[0]))));
  }
  __device__ __forceinline__ void keep(const Instruction& in, const Run& run) const {
    if (ring != nullptr) ring[int64_t{run.start & 3} * in.x_width] = input;
  }
};

class DeltaOfRow {
 public:
  __device__ DeltaOfRow(const Instruction& in, const Pass& pass, DeltaShared& shared, int groups)
      : in_(in), pass_(pass), shared_(shared), groups_(groups), active_(static_cast<int>(warp()) < 4 * groups) {}

  // What can be read before the instruction before is done.
  __device__ __forceinline__ void ask(int number) {
    const Op& op = in_.op;
    unit_ = DeltaUnit(op, number, groups_);
    const Run& run = pass_.run[unit_.run];
    q_.ring = k_.ring = v_.ring = nullptr;
    if (active_) {
      part_.load(state_of(in_, run, unit_.head), op, unit_);
      // Of its quarter of four lanes' rows each lane has one.
      const int row = Part::first_row() + 32 * static_cast<int>(lane() % 4);
      if (row < op.key_dim) {
        q_.load(in_, run, unit_.channel(op, row));
        k_.load(in_, run, unit_.channel(op, op.key_dim + row));
      }
    }
    if (helper() >= 0 && helper() < unit_.columns) v_.load(in_, run, unit_.channel(op, 2 * op.key_dim + helper()));
    if (gates())
      rate_ = at<const float>(in_.vectors[0])[unit_.head], bias_ = at<const float>(in_.vectors[1])[unit_.head];
  }

  // Returns what the exchanges returned that wrote `out`.
  __device__ __forceinline__ uint32_t work() {
    const Op& op = in_.op;
    const Run& run = pass_.run[unit_.run];
    DeltaToken& token = shared_.token[0];
    q_.read();
    k_.read();
    v_.read();
    if (gates()) {
      const float y = row_of(in_.y, in_.y_width, run.first_row)[unit_.head];
      const float z = row_of(in_.z, in_.z_width, run.first_row)[unit_.head];
      if (lane() == 0) token.beta = sigmoid(y), token.decay = expf(rate_ * softplus(z + bias_));
    }
    if (v_.ring != nullptr) token.v[helper()] = v_.convolved();
    float keys[4];
    if (active_) {
      const float q = q_.convolved(), k = k_.convolved();
      float queries[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int from = static_cast<int>(lane() & ~3u) + i;
        keys[i] = __shfl_sync(kAll, k, from);
        queries[i] = __shfl_sync(kAll, q, from);
      }
      part_.sum(keys, queries, shared_);
    }
    meet();
    uint32_t done = 0;
    if (active_) {
      const float4 from = *reinterpret_cast<const float4*>(&token.v[Part::column()]);
      const float v[4] = {from.x, from.y, from.z, from.w}, decay = token.decay;
      float by[4], out[4];
      delta_columns(op, shared_, v, decay, token.beta, by, out);
      // Each of a group's four warps writes every fourth column.
      const uint32_t j = warp() % 4;
      if (lane() < 4 && Part::column() < unit_.columns)
        done = exchange(row_of(in_.out, in_.out_width, run.first_row) + unit_.head * op.value_dim + unit_.column +
                            Part::column() + j,
                        j == 0   ? out[0]
                        : j == 1 ? out[1]
                        : j == 2 ? out[2]
                                 : out[3]);
      part_.change(keys, decay, by);
      part_.store(state_of(in_, run, unit_.head), op, unit_);
    }
    if (unit_.column == 0 && static_cast<int>(warp()) < 4 && unit_.leads(op)) {
      q_.keep(in_, run);
      k_.keep(in_, run);
    }
    v_.keep(in_, run);
    return done;
  }

 private:
  using Part = DeltaPart<4, true>;

  // Threads behind those with columns, or the first: one for each column's value, and a warp for gates.
  __device__ __forceinline__ int helper() const {
    return static_cast<int>(threadIdx.x) - (groups_ < 4 ? groups_ * kThreads / 4 : 0);
  }
  __device__ __forceinline__ bool gates() const { return helper() >> 5 == 4 * kGroupColumns / 32; }

  const Instruction& in_;
  const Pass& pass_;
  DeltaShared& shared_;
  const int groups_;
  const bool active_;
  DeltaUnit unit_;
  Part part_;
  DeltaChannel q_, k_, v_;
  float rate_ = 0, bias_ = 0;
};

// wait(): until what the instruction before has written is there. `out` is written by exchanges, and what they return
// is returned: nobody else reads the rest in the same launch.
template <class Wait>
__device__ __forceinline__ uint32_t do_conv_delta_rows(const Instruction& in, const Pass& pass, uint32_t block,
                                                       uint32_t blocks, unsigned char* shared, Wait wait) {
  const int groups = column_groups(in.op, pass.runs, static_cast<int>(blocks));
  const int units = DeltaUnit::count(in.op, pass.runs, groups);
  int number = static_cast<int>(block);
  uint32_t done = 0;
  DeltaOfRow of(in, pass, *reinterpret_cast<DeltaShared*>(shared), groups);
  if (number < units) of.ask(number);
  wait();
  while (number < units) {
    number += static_cast<int>(blocks);
    fetch_state(in, pass, number, groups);
    done |= of.work();
    if (number >= units) break;
    of.ask(number);
    meet();
  }
  return done;
}

}  // namespace baton::cuda
