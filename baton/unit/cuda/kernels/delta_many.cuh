// Convolution and delta rule of the rows of many runs, where is_plain_delta says so. Bits are those of delta.cuh.
//
// A unit is a part of a head's columns of one run, and a block has units that follow each other: one part of many runs,
// then the next part. So what a thread needs to know of a part it finds out seldom. While a unit is worked on, the
// states of the next ones are on their way, each thread's to places of its own, which it asks for anew as soon as it
// has read them; and while it is summed, the next one's inputs are convolved. The block meets once a unit.
#pragma once

#include <cstddef>

#include "baton/unit/cuda/kernels/delta.cuh"
#include "baton/unit/cuda/kernels/list.cuh"

namespace baton::cuda {

// kSets: of columns that a thread has in each of its rows, four in a set; sets are 64 apart.
template <int kSets>
struct DeltaMany {
  static constexpr int kKeyDim = 128;
  static constexpr int kColumns = kSets * 4 * kGroupColumns;
  static constexpr int kChannels = 2 * kKeyDim + kColumns;
  static constexpr int kAhead = 2;  // units on their way
  static_assert(kChannels + 1 <= kThreads);

  // What is on its way to a thread: of a unit the state; and of the unit behind that a channel's inputs, the ring's
  // from the oldest on, then the new one, and what a head's decay is made of.
  struct Places {
    float4 state[kSets][4][kThreads];
    float inputs[4][kChannels];
    float gates[4];
  };
  struct Token {
    float q[kKeyDim], k[kKeyDim], v[kColumns];
    float beta, decay, unused[2];
  };
  struct Sums {
    float columns[kSets][2][kThreads / 32][kGroupColumns];
    float squares[4][4];
  };
  alignas(16) Token token[2];
  Sums sums[2];
  Places places[kAhead];
};

template <int kSets>
class DeltaOfMany {
 public:
  using Room = DeltaMany<kSets>;

  __device__ DeltaOfMany(const Instruction& in, const Pass& pass, int blocks, Room& room)
      : in_(in),
        pass_(pass),
        room_(room),
        wide_(kSets > 1 ? Room::kColumns : column_groups(in.op, pass.runs, blocks) * kGroupColumns),
        parts_((in.op.value_dim + wide_ - 1) / wide_) {}

  // before: blocks have arrived behind the instruction before it, and are waited for; null: nobody is. States do not
  // depend on that.
  __device__ __forceinline__ void run(int block, int blocks, const Meeting* before) {
    const int units = in_.op.heads * parts_ * pass_.runs;
    const int begin = units * block / blocks, count = units * (block + 1) / blocks - begin;
    if (count == 0) return wait_for_blocks(before);
    clear();
    const Place first = {begin / pass_.runs, begin % pass_.runs};
    Inputs asked_inputs = {first}, inputs = {first};
    Columns asked = {first}, own = {first};
    for (int i = 0; i < min(Room::kAhead, count); ++i) ask_state(asked, room_.places[(i + 1) % Room::kAhead]);
    copies_end_group();
    wait_for_blocks(before);
    // What is asked for is read in as many turns as there are places: the first unit's inputs one before its state.
#pragma unroll 1
    for (int i = -1 - Room::kAhead, place = 0; i < count; ++i) {
      Places& places = room_.places[place];
      place = place + 1 < Room::kAhead ? place + 1 : 0;
      copies_wait<Room::kAhead - 1>();
      Part part[kSets];
      load(places, part);  // nothing yet of the first
      if (i >= -1 && i + 1 < count) convolve(inputs, places, room_.token[(i + 1) & 1]);
      const int ahead = i + Room::kAhead;
      if (ahead >= Room::kAhead && ahead < count) ask_state(asked, places);
      if (ahead + 1 < count) ask_inputs(asked_inputs, places);
      copies_end_group();
      if (i >= 0) {
        work(own, part, room_.token[i & 1], room_.sums[i & 1]);
      } else if (i == -1) {
        meet();
      }
    }
    copies_wait<0>();
  }

 private:
  using Part = DeltaPart<4, true>;
  using Places = typename Room::Places;
  using Token = typename Room::Token;
  using Sums = typename Room::Sums;

  struct Place {
    int part, run;     // a part of a head's columns: head * parts_ + which
    int entered = -1;  // the part of which the rest is known
  };
  // Of a thread: where its columns are, in bytes behind a run's parts, and in a row of what comes out.
  struct Columns {
    Place at;
    uint32_t state;
    int out;
    bool has[kSets];
  };
  // Likewise of its channel; or it has the gates, or nothing.
  struct Inputs {
    Place at;
    int channel;  // of the op's input; the gates': the head
    bool has_channel, has_gates, writes;
    float4 taps;
    float rate, bias;
  };

  // The run; then it is the next one's turn.
  template <class Of>
  __device__ __forceinline__ const Run& take(Of& of) const {
    if (of.at.part != of.at.entered) enter(of);
    const Run& run = pass_.run[of.at.run];
    if (++of.at.run == pass_.runs) of.at.run = 0, ++of.at.part;
    return run;
  }
  __device__ __forceinline__ DeltaUnit unit_of(int part) const {
    DeltaUnit unit;
    unit.head = part / parts_;
    unit.column = (part - unit.head * parts_) * wide_;
    unit.columns = min(wide_, in_.op.value_dim - unit.column);
    unit.key_head = key_head_of(in_.op, unit.head);
    return unit;
  }
  __device__ __forceinline__ void enter(Columns& to) const {
    const Op& op = in_.op;
    const DeltaUnit unit = unit_of(to.at.entered = to.at.part);
    const int column = unit.column + Part::column();
    to.out = unit.head * op.value_dim + column;
    to.state = static_cast<uint32_t>(((unit.head * op.key_dim + Part::first_row()) * op.value_dim + column) * 4);
#pragma unroll
    for (int s = 0; s < kSets; ++s) to.has[s] = Part::column() + 64 * s < unit.columns;
  }
  // The last threads have channels, the first warps take the state's sums.
  __device__ static int own_channel() { return kThreads - 1 - static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ void enter(Inputs& to) const {
    const Op& op = in_.op;
    const DeltaUnit unit = unit_of(to.at.entered = to.at.part);
    const int channels = unit.channels(op), own = own_channel();
    to.has_channel = own < channels, to.has_gates = own == channels;
    to.channel = to.has_channel ? unit.channel(op, own) : unit.head;
    to.writes = own >= 2 * op.key_dim || (unit.column == 0 && unit.leads(op));
    if (to.has_channel) to.taps = at<const float4>(in_.vectors[2])[to.channel];
    if (to.has_gates)
      to.rate = at<const float>(in_.vectors[0])[unit.head], to.bias = at<const float>(in_.vectors[1])[unit.head];
  }
  // Each lane's by a shuffle: of an address with a part that it knows to be the same for all threads, ptxas 13.0 makes
  // copies that are no instructions of a card.
  __device__ __forceinline__ static uint32_t lanes_own(const void* at) {
    return __shfl_sync(kAll, shared_address(at), static_cast<int>(lane()));
  }
  __device__ __forceinline__ bool has_row(int i) const { return Part::first_row() + 32 * i < in_.op.key_dim; }

  __device__ __forceinline__ void ask_state(Columns& of, Places& places) const {
    const Run& run = take(of);
    const uint32_t to = lanes_own(&places.state[0][0][threadIdx.x]);
    const Policy passing = passes_by();
    const float* const from = at<const float>(run.parts + in_.slot.offset + of.state);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int s = 0; s < kSets; ++s) {
        if (of.has[s] && has_row(i))
          copy_ahead(to + (s * 4 + i) * kThreads * 16, from + 32 * i * in_.op.value_dim + 64 * s, passing);
      }
    }
  }
  __device__ __forceinline__ void ask_inputs(Inputs& of, Places& places) const {
    const Run& run = take(of);
    const Policy passing = passes_by();
    const uint32_t inputs = lanes_own(&places.inputs[0][of.has_channel ? own_channel() : 0]);
    const uint32_t gates = lanes_own(&places.gates[0]);
    if (of.has_channel) {
      const float* const ring = at<const float>(run.parts + in_.slot2.offset) + of.channel;
#pragma unroll
      for (int k = 0; k < 3; ++k)
        copy_word_ahead(inputs + k * Room::kChannels * 4, ring + ((run.start + 1 + k) & 3) * in_.x_width, passing);
      copy_word_ahead(inputs + 3 * Room::kChannels * 4, row_of(in_.x, in_.x_width, run.first_row) + of.channel,
                      passing);
    }
    if (of.has_gates) {
      copy_word_ahead(gates, row_of(in_.y, in_.y_width, run.first_row) + of.channel, passing);
      copy_word_ahead(gates + 4, row_of(in_.z, in_.z_width, run.first_row) + of.channel, passing);
    }
  }

  __device__ __forceinline__ void convolve(Inputs& of, const Places& places, Token& token) const {
    const Run& run = take(of);
    if (of.has_channel) {
      const int own = own_channel(), keys = in_.op.key_dim;
      const float input = places.inputs[3][own];
      const float sum = fmaf(of.taps.w, input,
                             fmaf(of.taps.z, places.inputs[2][own],
                                  fmaf(of.taps.y, places.inputs[1][own], of.taps.x * places.inputs[0][own])));
      float* const to = own < keys ? token.q + own : own < 2 * keys ? token.k + own - keys : token.v + own - 2 * keys;
      *to = silu(sum);
      if (of.writes) at<float>(run.parts + in_.slot2.offset)[of.channel + (run.start & 3) * in_.x_width] = input;
    }
    if (of.has_gates) {
      token.beta = sigmoid(places.gates[0]);
      token.decay = expf(of.rate * softplus(places.gates[1] + of.bias));
    }
  }

  // Rows and columns that are not there are zero, and stay so.
  __device__ __forceinline__ void clear() const {
    if (in_.op.key_dim == Room::kKeyDim && wide_ == Room::kColumns && in_.op.value_dim % wide_ == 0) return;
    for (int place = 0; place < Room::kAhead; ++place) {
      for (int k = 0; k < 4 * kSets; ++k)
        (&room_.places[place].state[0][0][0])[k * kThreads + threadIdx.x] = make_float4(0, 0, 0, 0);
    }
    float* const tokens = reinterpret_cast<float*>(room_.token);
    for (int k = threadIdx.x; k < static_cast<int>(sizeof(room_.token) / 4); k += kThreads) tokens[k] = 0;
    meet();
  }
  __device__ __forceinline__ void load(const Places& places, Part (&part)[kSets]) const {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) part[s].value[i] = places.state[s][i][threadIdx.x];
    }
  }

  // The token's are read before the block meets, as behind that the next but one comes to its place.
  __device__ __forceinline__ void work(Columns& of, Part (&part)[kSets], const Token& token, Sums& sums) const {
    const Op& op = in_.op;
    const Run& run = take(of);
    float keys[4], queries[4], v[kSets][4];
    const float decay = token.decay, beta = token.beta;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      keys[i] = token.k[Part::first_row() + 32 * i];
      queries[i] = token.q[Part::first_row() + 32 * i];
    }
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      const float4 from = *reinterpret_cast<const float4*>(&token.v[Part::column() + 64 * s]);  // or nothing's
      v[s][0] = from.x, v[s][1] = from.y, v[s][2] = from.z, v[s][3] = from.w;
      part[s].sum_columns(keys, queries, sums.columns[s]);
    }
    if (warp() < 4) Part::sum_squares(keys, queries, sums.squares[warp()]);
    meet();
    const DeltaFactors factors(op, sums.squares);
    float* const state = at<float>(run.parts + in_.slot.offset + of.state);
    float* const row = row_of(in_.out, in_.out_width, run.first_row) + of.out;
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      if (!of.has[s]) continue;
      float by[4], out[4];
      delta_columns(factors, sums.columns[s], v[s], decay, beta, by, out);
      if (static_cast<int>(warp() % 4) == s && lane() < 4)
        *reinterpret_cast<float4*>(row + 64 * s) = make_float4(out[0], out[1], out[2], out[3]);
      part[s].change(keys, decay, by);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (has_row(i)) *reinterpret_cast<float4*>(state + 32 * i * op.value_dim + 64 * s) = part[s].value[i];
      }
    }
  }

  const Instruction& in_;
  const Pass& pass_;
  Room& room_;
  const int wide_, parts_;  // columns of a unit, parts of a head
};

// Whether heads are whole: of fewer, blocks would have nothing to do while the first come.
__device__ __forceinline__ bool has_whole_heads(const Instruction& in, const Pass& pass, int blocks) {
  return in.op.value_dim == 128 && in.op.heads * pass.runs >= 3 * blocks;
}
inline constexpr uint32_t kDeltaManyShared = sizeof(DeltaMany<2>);
static_assert(sizeof(DeltaMany<1>) <= kDeltaManyShared);

template <int kSets>
__device__ __noinline__ void conv_delta_by_sets(const Instruction& in, const Pass& pass, unsigned char* shared,
                                                const Meeting* before) {
  is_shared(&in);
  DeltaOfMany<kSets>(in, pass, static_cast<int>(gridDim.x), *reinterpret_cast<DeltaMany<kSets>*>(shared))
      .run(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), before);
}
__device__ __forceinline__ void do_conv_delta_of_many(const Instruction& in, const Pass& pass, unsigned char* shared,
                                                      const Meeting* before) {
  if (has_whole_heads(in, pass, static_cast<int>(gridDim.x))) return conv_delta_by_sets<2>(in, pass, shared, before);
  conv_delta_by_sets<1>(in, pass, shared, before);
}

}  // namespace baton::cuda
