// What a chunk of a head has of its inputs: rows of x, or, behind a convolution of four taps, what conv.cuh would make
// of them, with the same bits.
#pragma once

#include "baton/unit/cuda/kernels/conv.cuh"

namespace baton::cuda {

inline constexpr int kTapsBefore = 3;  // rows that a row's convolution sees before it

// Rows of x from a chunk's first on. With kConv they may be before it; of a run's first those before are in its ring.
template <bool kConv>
class ChunkInputs {
 public:
  __device__ __forceinline__ ChunkInputs(const Instruction& in, const Run& run, const RowTile& tile)
      : x_(row_of(in.x, in.x_width, run.first_row + tile.offset)), pitch_(pitch_of(in.x_width)), offset_(tile.offset) {
    if constexpr (!kConv) return;
    ring_ = at<const float>(run.parts + in.slot2.offset);
    taps_ = at<const float>(in.vectors[2]);
    width_ = in.x_width, start_ = run.start;
  }
  __device__ __forceinline__ const float* row(int t) const {
    if (!kConv || offset_ + t >= 0) return x_ + int64_t{t} * pitch_;
    return ring_ + static_cast<int64_t>(ring_index(start_ + offset_ + t, kTapsBefore + 1)) * width_;
  }
  // Of four channels, the oldest row's first: [channel][tap].
  __device__ __forceinline__ const float4* taps(int channel) const {
    return reinterpret_cast<const float4*>(taps_ + int64_t{channel} * (kTapsBefore + 1));
  }

 private:
  const float* x_;
  const float *ring_, *taps_;
  int pitch_, width_, offset_, start_;
};

// Of a channel's four rows, the oldest first.
__device__ __forceinline__ float convolved(const float4& taps, float a, float b, float c, float d) {
  return quick_silu(fmaf(taps.w, d, fmaf(taps.z, c, fmaf(taps.y, b, fmaf(taps.x, a, 0.0f)))));
}
// What later rows see of a run's: its share of the channels, of `parts`.
__device__ __forceinline__ void keep_inputs(const Instruction& in, const Run& run, int part, int parts) {
  const int channels = in.x_width, each = (channels + parts - 1) / parts, first = part * each;
  for (int c = first + static_cast<int>(threadIdx.x); c < min(channels, first + each);
       c += static_cast<int>(blockDim.x)) {
    Channel channel = channel_of(run, in.slot2, channels, in.op.taps, c);
    channel.x = row_of(in.x, channels, run.first_row) + c;
    channel.x_pitch = pitch_of(channels);
    keep_last(channel, run.rows);
  }
}

}  // namespace baton::cuda
