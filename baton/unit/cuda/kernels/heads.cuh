// Queries, keys and values: norms by head, rotation, and the rows that pages keep. A warp has a head.
#pragma once

#include "baton/unit/cuda/kernels/rows.cuh"
#include "baton/unit/cuda/mixers_geometry.h"

namespace baton::cuda {
namespace heads {

// A rotation at a position. `table`: frequencies, made on the host; else they are those of the op, divided by `factors`
// where there are any.
struct Turn {
  const float* table;
  const float* factors;
  float theta, magnitude, position;
  int32_t rotary;
  bool adjacent;
};
__device__ __forceinline__ Turn turn_of(const Instruction& instruction, const Op& rope, Address factors,
                                        int32_t position) {
  return {at<const float>(instruction.vectors[3]),
          at<const float>(factors),
          rope.rope_theta,
          rope.rope_magnitude,
          static_cast<float>(position),
          rope.rotary,
          rope.pairing == RopePairing::kAdjacent};
}

__device__ __forceinline__ float frequency_of(const Turn& turn, int32_t i) {
  if (turn.table != nullptr) return turn.table[i];
  const float frequency = rope_frequency(turn.theta, i, turn.rotary);
  return turn.factors != nullptr ? frequency / turn.factors[i] : frequency;
}
// Sine and cosine of an angle, times the magnitude, to 1e-7 of it for all positions: the angle's rest of a quarter turn
// in f64, then polynomials of least largest error on it. A function of the language's would be called, and what calls
// one keeps its values in memory.
__device__ __forceinline__ float2 turn_by(float angle, float magnitude) {
  const double quarters = rint(static_cast<double>(angle) * 0.63661977236758138);
  const auto x = static_cast<float>(fma(quarters, -1.5707963267948966, static_cast<double>(angle)));
  const auto turns = static_cast<int64_t>(quarters);
  const float z = x * x;
  const float sine = fmaf(x * z, fmaf(z, fmaf(z, -1.9514956511e-4f, 8.33215843886e-3f), -1.66666552424e-1f), x);
  const float cosine =
      fmaf(z * z, fmaf(z, fmaf(z, 2.44327839027e-5f, -1.38873129617e-3f), 4.16666455567e-2f), fmaf(-0.5f, z, 1.0f));
  const bool odd = (turns & 1) != 0;
  const float a = odd ? cosine : sine, b = odd ? sine : cosine;
  return make_float2(((turns & 2) != 0 ? -a : a) * magnitude, (((turns + 1) & 2) != 0 ? -b : b) * magnitude);
}
__device__ __forceinline__ void turn_pair(float& a, float& b, const float2& by) {
  const float first = fmaf(a, by.y, -__fmul_rn(b, by.x)), second = fmaf(b, by.y, __fmul_rn(a, by.x));
  a = first;
  b = second;
}

inline constexpr int kOfLane = 8;       // values of a head, 32 apart
inline constexpr int kTurnsOfLane = 4;  // of them

// Norm and rotation of a head of up to 256 values whose rotation is_plain_turn, with frequencies that the host made, as
// most have: what of them does not depend on the values. Lanes have the values i = lane + 32 k; of
// pairs that are halves apart a lane has both, those beside each other two lanes have.
struct PlainTurn {
  float scales[kOfLane];
  float2 by[kTurnsOfLane];  // of value k
  int32_t width, turned;    // values, in 32
  float eps;
  bool norm, adjacent;

  __device__ __forceinline__ static bool fits(const Turn& turn, int32_t width) {
    return width <= kOfLane * 32 && is_plain_turn(turn.rotary, width, turn.adjacent) &&
           (turn.rotary == 0 || turn.table != nullptr);
  }
  __device__ __forceinline__ PlainTurn() {}
  __device__ __forceinline__ PlainTurn(int32_t width, const float* scale, float eps, const Turn& turn)
      : width(width), turned(turn.rotary / 32), eps(eps), norm(scale != nullptr), adjacent(turn.adjacent) {
    const auto own = static_cast<int32_t>(lane());
    const int32_t count = adjacent ? turned : turned / 2;  // of halves the first has what both are turned by
    float frequencies[kTurnsOfLane];
#pragma unroll
    for (int k = 0; k < kTurnsOfLane; ++k)
      frequencies[k] = k < count ? turn.table[adjacent ? (own + 32 * k) / 2 : own + 32 * k] : 0.0f;
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) scales[k] = norm && own + 32 * k < width ? scale[own + 32 * k] : 1.0f;
#pragma unroll
    for (int k = 0; k < kTurnsOfLane; ++k) {
      if (k >= count) break;
      by[k] = turn_by(__fmul_rn(turn.position, frequencies[k]), turn.magnitude);
    }
  }

  // Values that are not there are zero, before and behind.
  __device__ __forceinline__ void apply(float (&v)[kOfLane]) const {
    if (norm) scale_all(v, width, eps, scales);
    turn_all(v, turned, adjacent, [&](int k) { return by[k]; });
  }

  // The two of these.
  __device__ __forceinline__ static void scale_all(float (&v)[kOfLane], int32_t width, float eps,
                                                   const float (&scales)[kOfLane]) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) sum = fmaf(v[k], v[k], sum);
    const float factor = rsqrtf(quotient(warp_sum(sum), static_cast<float>(width)) + eps);
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) v[k] = v[k] * factor * scales[k];
  }
  // by(k): what value k is turned by.
  template <class By>
  __device__ __forceinline__ static void turn_all(float (&v)[kOfLane], int32_t turned, bool adjacent, const By& by) {
    if (adjacent) {
      const bool second = (lane() & 1) != 0;
#pragma unroll
      for (int k = 0; k < kTurnsOfLane; ++k) {
        if (k >= turned) break;
        const float other = __shfl_xor_sync(kAll, v[k], 1);
        float a = second ? other : v[k], b = second ? v[k] : other;
        turn_pair(a, b, by(k));
        v[k] = second ? b : a;
      }
    } else if (turned == 2) {
      turn_pair(v[0], v[1], by(0));
    } else if (turned == 4) {
#pragma unroll
      for (int k = 0; k < 2; ++k) turn_pair(v[k], v[k + 2], by(k));
    } else if (turned == 8) {
#pragma unroll
      for (int k = 0; k < 4; ++k) turn_pair(v[k], v[k + 4], by(k));
    }
  }
};

// What pairs of a head are turned by at a position, of a rotation that PlainTurn fits: in shared memory.
struct TurnsThere {
  static constexpr int32_t kPairsMax = 128;
  float2 by[kPairsMax];

  // By a warp.
  __device__ __forceinline__ void make(const Turn& turn) {
    for (int32_t i = static_cast<int32_t>(lane()); i < turn.rotary / 2; i += 32)
      by[i] = turn_by(__fmul_rn(turn.position, turn.table[i]), turn.magnitude);
  }
  // Of a lane's value k, as PlainTurn counts them.
  __device__ __forceinline__ const float2& of_lane(int k, bool adjacent) const {
    const int32_t i = static_cast<int32_t>(lane()) + 32 * k;
    return by[adjacent ? i / 2 : i];
  }
};

// put(i, value) for each value of a head behind norm and rotation; without `scale` there is no norm. Lanes read all
// that they put. meanwhile(): what is done while values are on their way.
template <class Put, class Meanwhile>
__device__ __forceinline__ void turn_head(const float* x, int32_t width, const float* scale, float eps,
                                          const Turn& turn, Put put, Meanwhile meanwhile) {
  if (PlainTurn::fits(turn, width)) {
    const auto own = static_cast<int32_t>(lane());
    float v[kOfLane];
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) v[k] = own + 32 * k < width ? x[own + 32 * k] : 0.0f;
    const PlainTurn plain(width, scale, eps, turn);
    meanwhile();
    plain.apply(v);
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      if (own + 32 * k < width) put(own + 32 * k, v[k]);
    }
    return;
  }
  meanwhile();
  float factor = 1;
  if (scale != nullptr)
    factor = rsqrtf(quotient(rows::Team<false>{nullptr}.sum<1, 2>(x, width, 0), static_cast<float>(width)) + eps);
  const auto value = [&](int32_t i) { return scale != nullptr ? x[i] * factor * scale[i] : x[i]; };
  const int32_t half = turn.rotary / 2;
  for (int32_t i = static_cast<int32_t>(lane()); i < half; i += 32) {
    const float2 by = turn_by(__fmul_rn(turn.position, frequency_of(turn, i)), turn.magnitude);
    const int32_t first = turn.adjacent ? 2 * i : i, second = turn.adjacent ? 2 * i + 1 : half + i;
    float a = value(first), b = value(second);
    turn_pair(a, b, by);
    put(first, a);
    put(second, b);
  }
  for (int32_t i = 2 * half + static_cast<int32_t>(lane()); i < width; i += 32) put(i, value(i));
}

__device__ __forceinline__ void copy_head(const float* from, float* to, int32_t width) {
  const auto own = static_cast<int32_t>(lane());
  for (int32_t begin = own; begin < width; begin += 32 * kOfLane) {
    float v[kOfLane];  // all are on their way before the first is put down
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) v[k] = begin + 32 * k < width ? from[begin + 32 * k] : 0.0f;
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      if (begin + 32 * k < width) to[begin + 32 * k] = v[k];
    }
  }
}

__device__ __forceinline__ unsigned char* page_row(const Run& run, const Place& place, int32_t kv_head,
                                                   int32_t position) {
  const Address page = at<const Address>(run.pages)[position / kPageTokens];
  const int64_t row = int64_t{kv_head} * kPageTokens + position % kPageTokens;
  return at<unsigned char>(page + place.offset) + row * place.row_bytes;
}

__device__ __forceinline__ void put_value(Form form, unsigned char* row, int32_t i, float value) {
  if (form == Form::kF32) {
    reinterpret_cast<float*>(row)[i] = value;
  } else if (form == Form::kF16) {
    reinterpret_cast<__half*>(row)[i] = __float2half_rn(value);
  } else {
    reinterpret_cast<__nv_bfloat16*>(row)[i] = __float2bfloat16_rn(value);
  }
}

// Whether a type keeps nothing of a row whose largest magnitude has these bits.
__device__ __forceinline__ bool is_lost(Form form, uint32_t largest) {
  return form == Form::kF16 && largest != 0 && largest < __float_as_uint(0x1p-24f);
}

// One head's key and value of a row. No answer instead of a wrong one, where a type keeps nothing of either: the values
// become no numbers.
__device__ __forceinline__ void append_head(const Instruction& instruction, const Pass& pass, int32_t r, int32_t head,
                                            const float* scale, const Turn& turn) {
  const int32_t width = instruction.op.width, row = rows::pass_row(instruction, pass, r);
  const Run& run = rows::run_of(pass, row);
  const int32_t position = pass.position(row, run);
  unsigned char* const keys = page_row(run, instruction.slot, head, position);
  unsigned char* const values = page_row(run, instruction.slot2, head, position);
  const float* const y = row_of(instruction.y, instruction.y_width, r) + head * width;
  const float* const z = row_of(instruction.z, instruction.z_width, r) + head * width;
  uint32_t largest_key = 0, largest_value = 0;
  for (int32_t i = static_cast<int32_t>(lane()); i < width; i += 32) {
    const float value = z[i];
    largest_value = max(largest_value, __float_as_uint(value) & 0x7fffffffu);
    put_value(instruction.slot2.form, values, i, value);
  }
  turn_head(
      y, width, scale, instruction.op.eps, turn,
      [&](int32_t i, float value) {
        largest_key = max(largest_key, __float_as_uint(value) & 0x7fffffffu);
        put_value(instruction.slot.form, keys, i, value);
      },
      [] {});
  largest_key = __reduce_max_sync(kAll, largest_key);
  largest_value = __reduce_max_sync(kAll, largest_value);
  if (!is_lost(instruction.slot.form, largest_key) && !is_lost(instruction.slot2.form, largest_value)) return;
  for (int32_t i = static_cast<int32_t>(lane()); i < width; i += 32)
    put_value(instruction.slot2.form, values, i, rows::no_number());
}

}  // namespace heads

__device__ inline void do_rope(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                               unsigned char*) {
  const Op& op = instruction.op;
  const int64_t units = int64_t{rows::count_of(instruction, pass)} * op.heads;
  for (int64_t unit = int64_t{block} * kWarps + warp(); unit < units; unit += int64_t{blocks} * kWarps) {
    const auto r = static_cast<int32_t>(unit / op.heads), head = static_cast<int32_t>(unit % op.heads);
    float* const out = row_of(instruction.out, instruction.x_width, r) + head * op.width;
    heads::turn_head(
        row_of(instruction.x, instruction.x_width, r) + head * op.width, op.width, nullptr, 0,
        heads::turn_of(instruction, op, instruction.vectors[0], rows::position_of(instruction, pass, r)),
        [&](int32_t i, float value) { out[i] = value; }, [] {});
  }
}

__device__ __noinline__ void do_heads(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                      unsigned char*) {
  const Op& op = instruction.op;
  const int32_t each = op.heads + op.kv_heads, stride = instruction.x_stride != 0 ? instruction.x_stride : op.width;
  const int64_t units = int64_t{rows::count_of(instruction, pass)} * each;
  for (int64_t unit = int64_t{warp()} * blocks + block; unit < units; unit += int64_t{blocks} * kWarps) {
    const auto r = static_cast<int32_t>(unit / each), head = static_cast<int32_t>(unit % each);
    const heads::Turn turn =
        heads::turn_of(instruction, instruction.rope, instruction.vectors[2], rows::position_of(instruction, pass, r));
    if (head >= op.heads) {
      heads::append_head(instruction, pass, r, head - op.heads, at<const float>(instruction.vectors[1]), turn);
      continue;
    }
    float* const out = row_of(instruction.out, instruction.out_width, r) + head * op.width;
    const float* const from = row_of(instruction.x, instruction.x_width, r) + head * stride;
    heads::turn_head(
        from, op.width, at<const float>(instruction.vectors[0]), op.eps, turn,
        [&](int32_t i, float value) { out[i] = value; },
        [&] {
          if (instruction.out2 == 0) return;
          float* const gates = row_of(instruction.out2, instruction.out2_width, r) + head * op.width;
          heads::copy_head(from + op.width, gates, op.width);
        });
  }
}

__device__ inline void do_append(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                 unsigned char*) {
  const int32_t each = instruction.op.kv_heads;
  const int64_t units = int64_t{rows::count_of(instruction, pass)} * each;
  const heads::Turn none = {};
  for (int64_t unit = int64_t{block} * kWarps + warp(); unit < units; unit += int64_t{blocks} * kWarps)
    heads::append_head(instruction, pass, static_cast<int32_t>(unit / each), static_cast<int32_t>(unit % each), nullptr,
                       none);
}

}  // namespace baton::cuda
