// What an op kExperts becomes: choosing, gates and ups of the chosen, downs and their sum. A warp has a row, or one
// value of a product.
#pragma once

#include "baton/unit/cuda/kernels/rows.cuh"

namespace baton::cuda {
namespace experts {

// Of an expert: 0 gates, 1 ups, which are an instruction's matrices in this order; 2 downs, the only ones of theirs.
__device__ __forceinline__ Matrix matrix_of(const Instruction& instruction, int part, int32_t expert) {
  Matrix matrix = instruction.matrix[part % 2];
  matrix.values += static_cast<uint64_t>(expert) * instruction.expert_bytes[part];
  return matrix;
}

// matrix[row] . (share x), in all lanes; a lane has every 32nd group. Not inlined: a branch for each number of bits.
__device__ __noinline__ float product(const Matrix& matrix, int32_t row, const float* x, float share) {
  float sum = 0;
  for (int32_t group = static_cast<int32_t>(lane()); group < matrix.pitch / kGroup; group += 32) {
    float values[kGroup];
    decode32_any(matrix, row, group, values);
#pragma unroll
    for (int i = 0; i < kGroup; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(x + kGroup * group + i);
      sum += values[i] * (share * v.x) + values[i + 1] * (share * v.y) + values[i + 2] * (share * v.z) +
             values[i + 3] * (share * v.w);
    }
  }
  return warp_sum(sum);
}

// What a logit is ordered by; equals by their number, the lower first.
__device__ __forceinline__ float rank_of(float logit) { return isnan(logit) ? -HUGE_VALF : logit; }
struct Place {
  float rank;
  int32_t id;
};
__device__ __forceinline__ bool before(const Place& a, const Place& b) {
  return a.rank > b.rank || (a.rank == b.rank && a.id < b.id);
}

// The last of the `used` best.
__device__ __forceinline__ Place last_chosen(const float* logits, int32_t count, int32_t used, float* highest) {
  Place last = {HUGE_VALF, -1};
  for (int32_t i = 0; i < used; ++i) {
    Place best = {-HUGE_VALF, 0x7fffffff};
    for (int32_t e = static_cast<int32_t>(lane()); e < count; e += 32) {
      const Place own = {rank_of(logits[e]), e};
      if (before(last, own) && before(own, best)) best = own;
    }
#pragma unroll
    for (int k = 16; k > 0; k >>= 1) {
      const Place other = {__shfl_xor_sync(kAll, best.rank, k), __shfl_xor_sync(kAll, best.id, k)};
      if (before(other, best)) best = other;
    }
    last = best;
    if (i == 0) *highest = best.rank;
  }
  return last;
}

// One row, by a warp: ids ascend.
__device__ __forceinline__ void route_row(const Op& op, const float* logits, int32_t* ids, float* shares) {
  float highest = 0, sum = 0;
  const Place last = last_chosen(logits, op.experts, op.experts_used, &highest);
  bool finite = true;
  for (int32_t e = static_cast<int32_t>(lane()); e < op.experts; e += 32) {
    finite = finite && isfinite(logits[e]);
    const bool chosen = !before(last, {rank_of(logits[e]), e});
    if (chosen || op.routing == Routing::kSoftmaxOfAll) sum += expf(logits[e] - highest);
  }
  finite = __all_sync(kAll, finite);
  sum = warp_sum(sum);
  int32_t written = 0;
  for (int32_t first = 0; first < op.experts; first += 32) {
    const int32_t e = first + static_cast<int32_t>(lane());
    const float logit = e < op.experts ? logits[e] : 0;
    const bool chosen = e < op.experts && !before(last, {rank_of(logit), e});
    const uint32_t all = __ballot_sync(kAll, chosen);
    if (chosen) {
      const int32_t to = written + __popc(all & ((1u << lane()) - 1));
      ids[to] = e;
      const float share = op.routing == Routing::kSigmoidOfInput ? sigmoid(logit) : expf(logit - highest) / sum;
      shares[to] = finite ? share : rows::no_number();
    }
    written += __popc(all);
  }
}

}  // namespace experts

// y: logits.
__device__ inline void do_route(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                unsigned char*) {
  const Op& op = instruction.op;
  const int32_t count = rows::count_of(instruction, pass);
  for (int64_t r = int64_t{block} * kWarps + warp(); r < count; r += int64_t{blocks} * kWarps)
    experts::route_row(op, row_of(instruction.y, op.experts, r), at<int32_t>(instruction.ids) + r * op.experts_used,
                       at<float>(instruction.shares) + r * op.experts_used);
}

__device__ inline void do_experts_in(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                     unsigned char*) {
  const Op& op = instruction.op;
  const int32_t inner = instruction.matrix[0].rows, pitch = pitch_of(inner);
  const int64_t units = int64_t{rows::count_of(instruction, pass)} * op.experts_used * pitch;
  for (int64_t unit = int64_t{block} * kWarps + warp(); unit < units; unit += int64_t{blocks} * kWarps) {
    const int64_t routed = unit / pitch;  // row and place among the chosen
    const auto i = static_cast<int32_t>(unit % pitch);
    float made = 0;
    if (i < inner) {
      const int32_t expert = at<const int32_t>(instruction.ids)[routed];
      const float share = op.routing == Routing::kSigmoidOfInput ? at<const float>(instruction.shares)[routed] : 1.0f;
      const float* const x = row_of(instruction.x, instruction.x_width, routed / op.experts_used);
      const float gate = experts::product(experts::matrix_of(instruction, 0, expert), i, x, share);
      made = silu(gate) * experts::product(experts::matrix_of(instruction, 1, expert), i, x, share);
    }
    if (lane() == 0) at<float>(instruction.inner)[routed * pitch + i] = made;
  }
}

__device__ inline void do_experts_out(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                      unsigned char*) {
  const Op& op = instruction.op;
  const int32_t width = instruction.out_width, inner = instruction.matrix[0].columns;
  const int64_t units = int64_t{rows::count_of(instruction, pass)} * width;
  for (int64_t unit = int64_t{block} * kWarps + warp(); unit < units; unit += int64_t{blocks} * kWarps) {
    const int64_t r = unit / width;
    const auto i = static_cast<int32_t>(unit % width);
    float sum = 0;
    for (int32_t j = 0; j < op.experts_used; ++j) {
      const int64_t routed = r * op.experts_used + j;
      const Matrix downs = experts::matrix_of(instruction, 2, at<const int32_t>(instruction.ids)[routed]);
      const float share = op.routing == Routing::kSigmoidOfInput ? 1.0f : at<const float>(instruction.shares)[routed];
      sum += share * experts::product(downs, i, row_of(instruction.inner, inner, routed), 1.0f);
    }
    if (lane() == 0) row_of(instruction.out, width, r)[i] = sum;
  }
}

}  // namespace baton::cuda
