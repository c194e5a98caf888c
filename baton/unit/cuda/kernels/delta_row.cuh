// Convolution and delta rule of a step, where is_plain_delta says so, with the bits of delta.cuh. Whatever the
// instruction before does not write is on its way to shared memory while that is waited for, each thread's to places of
// its own: the state's columns, what the ring holds, taps. In registers it would not stay: they go to memory where so
// much has to wait, and more memory than the first level of cache has.
#pragma once

#include "baton/unit/cuda/kernels/delta.cuh"
#include "baton/unit/cuda/kernels/words.cuh"

namespace baton::cuda {

inline constexpr int kDeltaRowWarps = 4;  // that have the columns of a unit, kGroupColumns; others bring inputs
inline constexpr int kDeltaRowChannels = 2 * 128 + kGroupColumns;

// In shared memory.
struct DeltaRowShared {
  DeltaToken token;
  DeltaSums sums;
  float4 state[4][32 * kDeltaRowWarps];  // of threads that have columns: rows first_row() + 32 i
  float4 taps[kDeltaRowChannels];
  float old[3][kDeltaRowChannels];  // inputs before, from the oldest on
};
static_assert(sizeof(DeltaRowShared) <= kDeltaRowRoom);

// What a thread has of a unit for which it brings an input: a channel, or a gate, or nothing.
struct DeltaBringer {
  int mine, gates;

  __device__ __forceinline__ DeltaBringer(const Op& op, const DeltaUnit& unit)
      : mine(kThreads - 1 - static_cast<int>(threadIdx.x)), gates((unit.channels(op) + 31) & ~31) {}
  static_assert(kDeltaRowChannels + 31 + 64 <= kThreads - 32 * kDeltaRowWarps);
  __device__ __forceinline__ bool has_channel(const Op& op, const DeltaUnit& unit) const {
    return mine < unit.channels(op);
  }
  __device__ __forceinline__ static float* ring_of(const Instruction& in, const Run& run, int channel) {
    return at<float>(run.parts + in.slot2.offset) + channel;
  }

  // All but the new input.
  __device__ __forceinline__ void ask(const Instruction& in, const Run& run, const DeltaUnit& unit,
                                      DeltaRowShared& room) const {
    if (!has_channel(in.op, unit)) return;
    const int channel = unit.channel(in.op, mine);
    copy_ahead(shared_address(&room.taps[mine]), at<const float>(in.vectors[2]) + int64_t{channel} * 4);
    const float* const ring = ring_of(in, run, channel);
#pragma unroll
    for (int k = 0; k < 3; ++k)
      copy_word_ahead(shared_address(&room.old[k][mine]), ring + int64_t{(run.start + 1 + k) & 3} * in.x_width);
  }
  // Behind the wait.
  __device__ __forceinline__ void bring(const Instruction& in, const Run& run, const DeltaUnit& unit,
                                        DeltaRowShared& room) const {
    const Op& op = in.op;
    DeltaToken& token = room.token;
    if (has_channel(op, unit)) {
      const int channel = unit.channel(op, mine);
      const float input = value_of(in, in.x, in.x_width, kWordsX, channel, run);
      copies_wait<0>();
      const float4 taps = room.taps[mine];
      const float sum = fmaf(taps.z, room.old[2][mine], fmaf(taps.y, room.old[1][mine], taps.x * room.old[0][mine]));
      *unit.place(op, token, mine) = silu(fmaf(taps.w, input, sum));
      if (mine >= 2 * op.key_dim || (unit.column == 0 && unit.leads(op)))
        ring_of(in, run, channel)[int64_t{run.start & 3} * in.x_width] = input;
    } else if (mine == gates) {
      token.beta = sigmoid(value_of(in, in.y, in.y_width, kWordsY, unit.head, run));
    } else if (mine == gates + 32) {
      const float rate = at<const float>(in.vectors[0])[unit.head], bias = at<const float>(in.vectors[1])[unit.head];
      token.decay = expf(rate * softplus(value_of(in, in.z, in.z_width, kWordsZ, unit.head, run) + bias));
    }
  }

 private:
  // A value of a run's row of a register.
  __device__ __forceinline__ static float value_of(const Instruction& in, Address from, int32_t width, Worded which,
                                                   int i, const Run& run) {
    if ((in.worded & which) == 0) return row_of(from, width, run.first_row)[i];
    AskedWord asked;
    asked.ask(at<const uint32_t>(from) + i);
    return asked.take();
  }
};

// A thread's columns of a unit.
struct DeltaOfRow {
  using Part = DeltaPart<4, true>;

  __device__ __forceinline__ static void ask(const Instruction& in, const Run& run, const DeltaUnit& unit,
                                             DeltaRowShared& room) {
    const auto none = [](int, int, const float*) {};
    Part::each(
        static_cast<const float*>(state_of(in, run, unit.head)), in.op, unit,
        [&](int i, const float* from) { copy_ahead(shared_address(&room.state[i][threadIdx.x]), from); }, none);
  }
  // Behind the wait for that. Rows that are not there are zero.
  __device__ __forceinline__ static void load(const Op& op, const DeltaRowShared& room, Part& part) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      part.value[i] = Part::first_row() + 32 * i < op.key_dim ? room.state[i][threadIdx.x] : make_float4(0, 0, 0, 0);
  }
  __device__ __forceinline__ static float of_row(const Op& op, const float* values, int i) {
    const int row = Part::first_row() + 32 * i;
    return row < op.key_dim ? values[row] : 0.0f;
  }
  __device__ __forceinline__ static void sum(const Op& op, DeltaRowShared& room) {
    Part part;
    load(op, room, part);
    float keys[4], queries[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      keys[i] = of_row(op, room.token.k, i);
      queries[i] = of_row(op, room.token.q, i);
    }
    part.sum(keys, queries, room.sums);
  }
  // Behind a barrier: what comes out, then the state.
  __device__ __forceinline__ static uint32_t finish(const Instruction& in, const Run& run, const DeltaUnit& unit,
                                                    const DeltaRowShared& room) {
    const Op& op = in.op;
    const DeltaToken& token = room.token;
    const float4 from = *reinterpret_cast<const float4*>(&token.v[Part::column()]);
    const float v[4] = {from.x, from.y, from.z, from.w}, decay = token.decay;
    float by[4], out[4];
    delta_columns(DeltaFactors(op, room.sums.squares), room.sums.columns, v, decay, token.beta, by, out);
    // Each of the warps writes every fourth column.
    const uint32_t j = warp() % 4;
    uint32_t done = 0;
    if (lane() < 4) {
      const int to = unit.head * op.value_dim + unit.column + Part::column() + static_cast<int>(j);
      const float value = j == 0 ? out[0] : j == 1 ? out[1] : j == 2 ? out[2] : out[3];
      if ((in.worded & kWordsOut) != 0) {
        store_word(at<uint32_t>(in.out) + to, word_of_value(value));
      } else {
        done = exchange(row_of(in.out, in.out_width, run.first_row) + to, value);
      }
    }
    Part part;
    load(op, room, part);
    float keys[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) keys[i] = of_row(op, token.k, i);
    part.change(keys, decay, by);
    part.store(state_of(in, run, unit.head), op, unit);
    return done;
  }
};

// `first`: the block's first unit, if it has one: to find it out takes some divisions.
// wait(): until what the instruction before has written is there, as far as it is not words. `out` is
// written by exchanges, and what they return is returned, or as words: nobody else reads the rest in the same launch.
template <class Wait>
__device__ __forceinline__ uint32_t do_conv_delta_rows(const Instruction& in, const Pass& pass, uint32_t block,
                                                       uint32_t blocks, const DeltaUnit& first, unsigned char* shared,
                                                       Wait wait) {
  DeltaRowShared& room = *reinterpret_cast<DeltaRowShared*>(shared);
  const int units = DeltaUnit::count(in.op, pass.runs, 1);
  const bool has_columns = static_cast<int>(warp()) < kDeltaRowWarps;
  uint32_t done = 0;
  if (static_cast<int>(block) >= units) wait();
  for (int number = static_cast<int>(block); number < units; number += static_cast<int>(blocks)) {
    DeltaUnit unit = first;
    if (number != static_cast<int>(block)) unit = DeltaUnit(in.op, number, 1);
    const Run& run = pass.run[unit.run];
    const DeltaBringer bringer(in.op, unit);
    if (has_columns) {
      DeltaOfRow::ask(in, run, unit, room);
    } else {
      bringer.ask(in, run, unit, room);
    }
    copies_end_group();
    if (number == static_cast<int>(block)) {
      wait();
    } else {
      meet();  // what the unit before brought is read
    }
    fetch_state(in, pass, number + static_cast<int>(blocks), 1);
    if (!has_columns) bringer.bring(in, run, unit, room);
    copies_wait<0>();
    meet();
    if (has_columns) DeltaOfRow::sum(in.op, room);
    meet();
    if (has_columns) done |= DeltaOfRow::finish(in, run, unit, room);
  }
  return done;
}

}  // namespace baton::cuda
