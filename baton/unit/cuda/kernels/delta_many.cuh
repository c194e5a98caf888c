// Convolution and delta rule of the rows of many runs, where is_plain_delta says so. While a unit is worked on, all
// that the next needs is on its way to places in shared memory that belong to its threads alone. Bits are those of
// delta.cuh.
#pragma once

#include <cstddef>

#include "baton/unit/cuda/kernels/delta.cuh"

namespace baton::cuda {

// What a thread needs of a unit: four columns of its rows of the state; of a channel the taps, what the ring holds from
// the oldest on, and the new input. And what a head's decay is made of: of the op's y and z, its rate and its bias.
struct DeltaPlaces {
  float4 state[4][kThreads];
  float4 taps[kThreads];
  float inputs[4][kThreads];
  float gates[4];
};
struct DeltaMany {
  DeltaShared shared;
  DeltaPlaces places[2];
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
  __device__ DeltaOfMany(const Instruction& in, const Pass& pass, int blocks, DeltaMany& room)
      : in_(in),
        pass_(pass),
        room_(room),
        groups_(column_groups(in.op, pass.runs, blocks)),
        parts_((in.op.value_dim + wide() - 1) / wide()),
        heads_(in.op.heads),
        keys_(in.op.head_map == HeadMap::kGrouped ? in.op.heads / in.op.kv_heads : in.op.kv_heads) {}

  __device__ void run(int block, int blocks) {
    const int units = DeltaUnit::count(in_.op, pass_.runs, groups_);
    ask(block, units, 0);
    for (int number = block, turn = 0; number < units; number += blocks, turn ^= 1) {
      ask(number + blocks, units, turn ^ 1);
      copies_wait<1>();
      work(unit_of(number), room_.places[turn]);
    }
    copies_wait<0>();
  }

 private:
  using Part = DeltaPart<4, true>;

  __device__ int wide() const { return groups_ * kGroupColumns; }
  // As DeltaUnit(op, number, groups).
  __device__ __forceinline__ DeltaUnit unit_of(int number) const {
    const int of_run = parts_.quotient(number);
    DeltaUnit unit;
    unit.column = (number - of_run * parts_.by) * wide();
    unit.columns = min(wide(), in_.op.value_dim - unit.column);
    unit.run = heads_.quotient(of_run);
    unit.head = of_run - unit.run * heads_.by;
    const int key = keys_.quotient(unit.head);
    unit.key_head = in_.op.head_map == HeadMap::kGrouped ? key : unit.head - key * keys_.by;
    return unit;
  }
  // As DeltaUnit::leads, of its first columns.
  __device__ __forceinline__ bool leads(const DeltaUnit& unit) const {
    return unit.column == 0 &&
           (in_.op.head_map == HeadMap::kGrouped ? unit.key_head * keys_.by : unit.key_head) == unit.head;
  }
  __device__ bool active() const { return static_cast<int>(warp()) < 4 * groups_; }
  __device__ static int channel() { return kThreads - 1 - static_cast<int>(threadIdx.x); }
  __device__ bool has_gates(const DeltaUnit& unit) const { return channel() == unit.channels(in_.op); }
  __device__ float* ring_of(const Run& run, int from) const { return at<float>(run.parts + in_.slot2.offset) + from; }

  __device__ void ask(int number, int units, int turn) const {
    if (number < units) {
      const Op& op = in_.op;
      const DeltaUnit unit = unit_of(number);
      const Run& run = pass_.run[unit.run];
      DeltaPlaces& places = room_.places[turn];
      const uint32_t own = threadIdx.x;
      const Policy passing = passes_by();
      // Each lane's by a shuffle: of an address with a part that it knows to be the same for all threads, ptxas 13.0
      // makes copies that are no instructions of a card.
      const auto lanes_own = [](uint32_t address) { return __shfl_sync(kAll, address, static_cast<int>(lane())); };
      const uint32_t state = lanes_own(shared_address(&places.state[0][own]));
      const uint32_t taps = state + offsetof(DeltaPlaces, taps);
      const uint32_t inputs = lanes_own(shared_address(&places.inputs[0][own]));
      const uint32_t gates = inputs - own * 4 + (offsetof(DeltaPlaces, gates) - offsetof(DeltaPlaces, inputs));
      if (active()) {
        Part::each(
            state_of(in_, run, unit.head), op, unit,
            [&](int i, const float* at) { copy_ahead(state + i * kThreads * 16, at, passing); },
            [](int, int, const float*) {});
      }
      if (channel() < unit.channels(op)) {
        const int from = unit.channel(op, channel()), column = run.start & 3;
        const float* const ring = ring_of(run, from);
        copy_ahead(taps, at<const float>(in_.vectors[2]) + int64_t{from} * 4);
#pragma unroll
        for (int k = 0; k < 3; ++k)
          copy_word_ahead(inputs + k * kThreads * 4, ring + int64_t{(column + 1 + k) & 3} * in_.x_width, passing);
        copy_word_ahead(inputs + 3 * kThreads * 4, row_of(in_.x, in_.x_width, run.first_row) + from, passing);
      }
      if (has_gates(unit)) {
        const float* const from[4] = {row_of(in_.y, in_.y_width, run.first_row),
                                      row_of(in_.z, in_.z_width, run.first_row), at<const float>(in_.vectors[0]),
                                      at<const float>(in_.vectors[1])};
#pragma unroll
        for (int k = 0; k < 4; ++k) copy_word_ahead(gates + 4 * k, from[k] + unit.head, passing);
      }
    }
    copies_end_group();
  }

  __device__ void convolve(const DeltaUnit& unit, const Run& run, const DeltaPlaces& places, DeltaToken& token) const {
    const Op& op = in_.op;
    const uint32_t own = threadIdx.x;
    if (channel() < unit.channels(op)) {
      const float4 by = places.taps[own];
      const float input = places.inputs[3][own];
      const float sum =
          fmaf(by.w, input,
               fmaf(by.z, places.inputs[2][own], fmaf(by.y, places.inputs[1][own], by.x * places.inputs[0][own])));
      *unit.place(op, token, channel()) = silu(sum);
      if (channel() >= 2 * op.key_dim || leads(unit))
        ring_of(run, unit.channel(op, channel()))[int64_t{run.start & 3} * in_.x_width] = input;
    }
    if (has_gates(unit)) {
      token.beta = sigmoid(places.gates[0]);
      token.decay = expf(places.gates[2] * softplus(places.gates[1] + places.gates[3]));
    }
  }

  __device__ void work(const DeltaUnit& unit, const DeltaPlaces& places) const {
    const Op& op = in_.op;
    const Run& run = pass_.run[unit.run];
    DeltaToken& token = room_.shared.token[0];
    convolve(unit, run, places, token);
    Part part;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      part.value[i] =
          active() && Part::first_row() + 32 * i < op.key_dim ? places.state[i][threadIdx.x] : make_float4(0, 0, 0, 0);
    meet();
    delta_token(op, unit, active(), part, token, room_.shared,
                row_of(in_.out, in_.out_width, run.first_row) + unit.head * op.value_dim);
    if (active()) part.store(state_of(in_, run, unit.head), op, unit);
    meet();
  }

  const Instruction& in_;
  const Pass& pass_;
  DeltaMany& room_;
  const int groups_;
  const Divider parts_, heads_, keys_;
};

}  // namespace baton::cuda
