// Rows of x of a product in a block's shared memory.
#pragma once

#include "baton/unit/cuda/kernels/integer_rows.cuh"
#include "baton/unit/cuda/kernels/prologue.cuh"

namespace baton::cuda {

// Values of rows of x in a block's memory, as the matrices want them. All of an instruction want the same: codes, f32
// or 16-bit values, whose lanes read 8 values as two words of 4 that lie 128 apart.
struct Staged {
  unsigned char* xs;
  int pitch, stride, groups;
  bool halves, codes;

  __device__ Staged(const Matrix& matrix, unsigned char* at)
      : xs(at),
        pitch(matrix.pitch),
        stride((pitch + 255) & ~255),
        groups(static_cast<int>(static_cast<uint32_t>(pitch) / kGroup)),
        halves(matrix.form == Form::kF16 || matrix.form == Form::kBF16),
        codes(matrix.form == Form::kCodes) {}

  __device__ __forceinline__ int place(int i) const {
    return halves ? (i & ~255) + (i & 4) * 32 + (i & 255) / 8u * 4 + (i & 3) : i;
  }
  __device__ __forceinline__ float* floats(int r) const { return reinterpret_cast<float*>(xs) + r * stride; }
  __device__ __forceinline__ IntegerRow integers(int r) const {
    return integer_row(xs + r * integer_row_bytes(groups), groups);
  }
  // Values of a row, with zeros behind it.
  __device__ __forceinline__ int end() const { return codes ? pitch : stride; }
  // The same of 16-bit matrices.
  __device__ __forceinline__ void put_halves(int i, const float4& four) const {
    if (i >= stride) return;
    const auto at = static_cast<uint32_t>(i);
    put_four(shared_address(xs) + ((at & ~255u) + (at & 4u) * 32 + (at & 248u) / 2) * 4, four);
  }
  // Four of them from i on, 128 by a warp; none from end() on.
  __device__ __forceinline__ void put(int r, int i, const float4& four) const {
    if (codes) return round_fours(four, integers(r), i, groups);
    if (i < stride) *reinterpret_cast<float4*>(floats(r) + place(i)) = four;
  }
};

// What the products of each row of x are multiplied with, of a norm whose scale alone is in the row: from the squares
// that each warp summed. Lies behind the sums of warps, in front of the rows.
class Factors {
 public:
  __device__ __forceinline__ Factors(const Instruction& in, bool fours, unsigned char* shared)
      : squares_(reinterpret_cast<float*>(shared) + 2 * kWarps * kSet * kTile),
        width_(in.x_width),
        eps_(in.op.eps),
        late_(fours && in.prologue == Prologue::kRms) {}

  __device__ __forceinline__ float* squares(int r) const { return squares_ + r * kWarps; }
  __device__ __forceinline__ float* scratch() const { return squares_ + kTile * kWarps; }
  // Behind a meeting: the same in all threads.
  __device__ __forceinline__ float of(int r) const {
    if (!late_) return 1;
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = of_four(r, i);
    return factor((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  // of(0) by a warp together, which has it sooner, and nobody decides by what is read.
  __device__ __forceinline__ float of_row() const {
    float sum = of_four(0, static_cast<int>(lane() & 3));
    sum += __shfl_xor_sync(kAll, sum, 1);
    sum += __shfl_xor_sync(kAll, sum, 2);
    const float made = factor(sum);
    return late_ ? made : 1.0f;
  }

 private:
  static_assert(kWarps == 16);
  __device__ __forceinline__ float of_four(int r, int i) const {
    const float4 four = *reinterpret_cast<const float4*>(squares(r) + 4 * i);
    return (four.x + four.y) + (four.z + four.w);
  }
  __device__ __forceinline__ float factor(float sum) const {
    return rsqrtf(quotient(sum, static_cast<float>(width_)) + eps_);
  }

  float* squares_;  // [kTile][kWarps]
  int width_;
  float eps_;
  bool late_;
};
static_assert((2 * kWarps * kSet * kTile + kTile * kWarps + kWarps) * sizeof(float) <= kBeforeRows);

// Rows of x; a meeting at the end.
template <int kRows>
__device__ __forceinline__ void stage_rows(const Instruction& in, bool fours, int row, int rows, const Staged& to,
                                           const Factors& factors) {
  for (int r = 0; r < kRows; ++r) {
    if (r < rows && fours) {
      prologue_fours(in, row + r, to.end(), factors.squares(r), [&](int i, const float4& four) { to.put(r, i, four); });
      continue;
    }
    if (r < rows) {
      meet();  // what there was is read
      float* const floats =
          to.codes ? reinterpret_cast<float*>(to.xs + kRows * integer_row_bytes(to.groups)) : to.floats(r);
      prologue_row(in, row + r, factors.scratch(), [&](int i, float value) { floats[to.place(i)] = value; });
      for (int i = in.x_width + static_cast<int>(threadIdx.x); i < to.stride; i += kThreads) floats[to.place(i)] = 0;
      if (!to.codes) continue;
      meet();
      for (int group = static_cast<int>(warp()); group < to.groups; group += kWarps)
        round_group(floats + group * kGroup, to.integers(r), group, to.groups);
      continue;
    }
    for (int i = 4 * static_cast<int>(threadIdx.x); i - 4 * static_cast<int>(lane()) < to.end(); i += 4 * kThreads)
      to.put(r, i, make_float4(0, 0, 0, 0));
  }
  meet();
}

// One row that does not go by fours, `shared` being where its product works. Apart: few are of that kind.
__device__ __noinline__ void stage_other(const Instruction& in, unsigned char* shared) {
  stage_rows<1>(in, false, 0, 1, Staged(in.matrix[0], shared + kBeforeRows), Factors(in, false, shared));
}

}  // namespace baton::cuda
