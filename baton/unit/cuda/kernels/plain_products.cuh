// Do::kMultiply as most steps have it: one row of x, matrices of 16-bit values or of codes.
#pragma once

#include <type_traits>

#include "baton/unit/cuda/kernels/products.cuh"

namespace baton::cuda {

// A row of x, and a meeting.
template <bool kCodes>
__device__ __forceinline__ void stage_plain(const Instruction& in, bool fours, const Staged& staged,
                                            const Factors& factors) {
  if (!fours) return stage_other(in, staged, factors);
  prologue_fours(in, 0, kCodes ? staged.pitch : staged.stride, factors.squares(0), [&](int i, const float4& four) {
    if constexpr (kCodes) {
      round_fours(four, staged.integers(0), i, staged.groups);
    } else {
      staged.put_halves(i, four);
    }
  });
  meet();
}

// A piece at `at`: of output `row`, or of a pair's i-th row.
template <class Held>
__device__ __forceinline__ float sum_of_piece(const Instruction& in, Form form, const Held& held, int both, int i,
                                              int row, const unsigned char* at) {
  if constexpr (Held::kNeedsLine) {
    const Line line = both != 0 ? Line{i & 1, row} : line_of_output(in, row);
    return held.times(in.matrix[line.matrix], line.row, at, 0);
  } else {
    return form == Form::kBF16 ? held.template times_form<Form::kBF16>(at, 0)
                               : held.template times_form<Form::kF16>(at, 0);
  }
}

// One row of x with matrices of 16-bit values of one form, or of codes; no more spans than warps: what most steps are
// made of. It does what do_multiply does, in fewer steps; is_plain says of which.
template <bool kCodes>
__device__ __forceinline__ uint32_t do_plain_multiply(const Instruction& in, unsigned char* shared,
                                                      const FeedPlan& plan, uint32_t first) {
  is_shared(&in);
  begin_product(plan);
  const ProductShares of = in.product;
  const bool fours = of.has(ProductShares::kFours);
  const Factors factors(in, fours, shared);
  const Staged staged(in.matrix[0], shared + kBeforeRows);
  stage_plain<kCodes>(in, fours, staged, factors);
  const int both = of.has(ProductShares::kPairs) ? 1 : 0, teams_log2 = kWarpsLog2 - of.slices_log2;
  const int slice = static_cast<int>(warp()) & ((1 << of.slices_log2) - 1),
            team = static_cast<int>(warp() >> of.slices_log2);
  const int block = static_cast<int>(blockIdx.x), begin = block * of.outputs + min(block, of.more);
  const int outputs = of.outputs + (block < of.more ? 1 : 0);
  const int own_outputs = outputs > team ? (outputs - team + (1 << teams_log2) - 1) >> teams_log2 : 0;
  int lines = slice < of.spans ? own_outputs << both : 0;  // left to the warp
  const uint32_t step = static_cast<uint32_t>(of.spans) << (both + teams_log2);
  uint32_t piece = first + (static_cast<uint32_t>(team * of.spans + slice) << both);
  const std::conditional_t<kCodes, HeldIntegers, HeldValues> held(staged, min(slice * plan.span, staged.pitch - kGroup),
                                                                  plan.span);
  const Slots slots(plan);
  const unsigned char* const ring = shared + plan.work_bytes;
  const bool whole = of.slices_log2 == 0;
  const int thread = static_cast<int>(threadIdx.x), number = whole ? Sums<1>::number() : thread & (kSet - 1);
  const int of_team = whole ? team : thread >> 2;
  const bool puts = (whole ? (lane() & 7) == 0 : of_team < 1 << teams_log2) && (number & both) == 0;
  float* const partial = reinterpret_cast<float*>(shared);
  const float factor = factors.of(0);
  uint32_t done = 0;
  static_assert(kSet == 4 && Sums<1>::kSpread == 8);
#pragma unroll 1
  for (int round = 0, output = of_team + ((number >> both) << teams_log2); round << (2 - both + teams_log2) < outputs;
       ++round, output += 4 << (teams_log2 - both)) {
    const Target target(in, both != 0, begin + output, puts && output < outputs);
    float sums[kSet][1] = {};
#pragma unroll 1
    for (int i = 0; i < min(lines, kSet); ++i) {
      slots.wait_full(piece);
      const unsigned char* const at = ring + slots.slot(piece) * slots.slot_bytes;
      const int row = begin + team + (((round << (2 - both)) + (i >> both)) << teams_log2);
      const float sum = sum_of_piece(in, of.form, held, both, i, row, at);
#pragma unroll
      for (int k = 0; k < kSet; ++k) sums[k][0] = k == i ? sum : sums[k][0];
      slots.release(piece);
      piece += both == 0 ? step : (i & 1) == 0 ? 1 : step - 1;
    }
    lines -= kSet;
    float sum = Sums<1>::of(sums), other = 0;
    if (whole) {
      other = __shfl_down_sync(kAll, sum, Sums<1>::kSpread);
    } else {
      float* const put = partial + (round & 1) * kWarps * kSet * kTile;
      if ((lane() & 7) == 0) put[((team * kSet + Sums<1>::number()) << of.slices_log2) + slice] = sum;
      meet();
      if (puts) {
        const float* const from = put + (thread << of.slices_log2);
        sum = 0;
        for (int i = 0; i < 1 << of.slices_log2; ++i) sum += from[i];
        for (int i = 0; both != 0 && i < 1 << of.slices_log2; ++i) other += from[(1 << of.slices_log2) + i];
      }
    }
    done |= target.store(in, sum * factor, other * factor);
  }
  return done;
}

}  // namespace baton::cuda
