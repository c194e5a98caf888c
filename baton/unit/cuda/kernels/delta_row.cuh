// Convolution and delta rule of a step, where is_plain_delta says so, with the bits of delta.cuh. Whatever the
// instruction before does not write is read before it is waited for: the state, what the ring holds, taps, rates.
// Behind that is one barrier. A warp convolves what its own rows of the state are multiplied with, values and gates
// come from warps that have no columns where there are some.
#pragma once

#include "baton/unit/cuda/kernels/delta.cuh"
#include "baton/unit/cuda/kernels/words.cuh"

namespace baton::cuda {

// A thread's channel of a convolution of four taps.
struct DeltaChannel {
  float* ring = nullptr;  // null: none
  Address x;
  AskedWord asked;
  float4 taps;
  float old[3];  // from the oldest on
  float input;

  // All but the new input.
  __device__ __forceinline__ void load(const Instruction& in, const Run& run, int channel) {
    ring = at<float>(run.parts + in.slot2.offset) + channel;
    x = (in.worded & kWordsX) != 0 ? in.x + static_cast<Address>(channel) * 8
                                   : reinterpret_cast<Address>(row_of(in.x, in.x_width, run.first_row) + channel);
    taps = *reinterpret_cast<const float4*>(at<const float>(in.vectors[2]) + int64_t{channel} * 4);
#pragma unroll
    for (int k = 0; k < 3; ++k) old[k] = ring[int64_t{(run.start + 1 + k) & 3} * in.x_width];
  }
  __device__ __forceinline__ void read(bool worded) {
    if (ring == nullptr) return;
    if (worded) {
      asked.ask(at<const uint64_t>(x));
    } else {
      input = *at<const float>(x);
    }
  }
  // Of words, when they have come.
  __device__ __forceinline__ void take(uint32_t launch) {
    if (ring != nullptr) input = asked.take(launch);
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

  // Returns what the exchanges returned that wrote `out`; nothing where that is words.
  __device__ __forceinline__ uint32_t work(uint32_t launch) {
    const Op& op = in_.op;
    const Run& run = pass_.run[unit_.run];
    DeltaToken& token = shared_.token[0];
    const bool worded = (in_.worded & kWordsX) != 0;
    q_.read(worded);
    k_.read(worded);
    v_.read(worded);
    if (gates()) {
      const float y = gate(in_.y, in_.y_width, kWordsY, run, launch),
                  z = gate(in_.z, in_.z_width, kWordsZ, run, launch);
      if (lane() == 0) token.beta = sigmoid(y), token.decay = expf(rate_ * softplus(z + bias_));
    }
    if (worded) {
      v_.take(launch);
      q_.take(launch);
      k_.take(launch);
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
      if (lane() < 4 && Part::column() < unit_.columns) {
        const int to = unit_.head * op.value_dim + unit_.column + Part::column() + static_cast<int>(j);
        const float value = j == 0 ? out[0] : j == 1 ? out[1] : j == 2 ? out[2] : out[3];
        if ((in_.worded & kWordsOut) != 0) {
          store_word(at<uint64_t>(in_.out) + to, word_of_value(value, launch));
        } else {
          done = exchange(row_of(in_.out, in_.out_width, run.first_row) + to, value);
        }
      }
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
  // Of its head.
  __device__ __forceinline__ float gate(Address from, int32_t width, Worded which, const Run& run,
                                        uint32_t launch) const {
    if ((in_.worded & which) == 0) return row_of(from, width, run.first_row)[unit_.head];
    AskedWord asked;
    asked.ask(at<const uint64_t>(from) + unit_.head);
    return asked.take(launch);
  }

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

// wait(): until what the instruction before has written is there, as far as it is not words of this `launch`. `out` is
// written by exchanges, and what they return is returned, or as words: nobody else reads the rest in the same launch.
template <class Wait>
__device__ __forceinline__ uint32_t do_conv_delta_rows(const Instruction& in, const Pass& pass, uint32_t block,
                                                       uint32_t blocks, unsigned char* shared, uint32_t launch,
                                                       Wait wait) {
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
    done |= of.work(launch);
    if (number >= units) break;
    of.ask(number);
    meet();
  }
  return done;
}

}  // namespace baton::cuda
