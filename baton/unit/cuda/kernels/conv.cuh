// Convolutions over the tokens of a run: a thread has a channel of some consecutive rows. What lies before the first
// row is in the run's ring, which only the unit of the first rows reads, and writes behind that.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"
#include "baton/unit/cuda/mixers_geometry.h"

namespace baton::cuda {

inline constexpr int kWindow = 4;  // taps that are kept in registers
inline constexpr int kAhead = 8;   // rows that are read before the first of them is written

__device__ __forceinline__ int ring_index(int position, int taps) {
  const int index = position % taps;
  return index < 0 ? index + taps : index;
}

// silu in five instructions, of prompts: by hundreds in a line silu takes a block longer than all of its data does.
__device__ __forceinline__ float quick_silu(float x) { return x * reciprocal(1.0f + power_of_two(-1.44269504f * x)); }

// One channel of a run: its inputs by row, those before the first from the ring.
struct Channel {
  const float* x;        // of row 0
  const float* factors;  // each row's input is x times this; null: x alone
  const float* done;     // inputs of rows that are done, where x has them no more; null: x has
  int64_t x_pitch, factors_pitch, done_pitch;
  float* ring;
  int channels, taps, start;

  __device__ __forceinline__ float row(int t) const {
    const float value = x[t * x_pitch];
    return factors != nullptr ? value * factors[t * factors_pitch] : value;
  }
  __device__ __forceinline__ float* column(int t) const {
    return ring + static_cast<int64_t>(ring_index(start + t, taps)) * channels;
  }
  __device__ __forceinline__ float before(int t) const {
    if (t < 0) return *column(t);
    return done != nullptr ? done[t * done_pitch] : row(t);
  }
};

// Calls done(t, input, sum) for rows [first, end) in order.
template <class Done>
__device__ __forceinline__ void convolve(const Channel& channel, const float* weights, int first, int end, Done done) {
  if (channel.taps > kWindow) {
    for (int t = first; t < end; ++t) {
      float sum = 0;
      for (int j = channel.taps - 1; j > 0; --j) sum = fmaf(*weights++, channel.before(t - j), sum);
      const float value = channel.row(t);
      done(t, value, fmaf(*weights, value, sum));
      weights -= channel.taps - 1;
    }
    return;
  }
  float weight[kWindow], inputs[kWindow];
  const int none = kWindow - channel.taps;
#pragma unroll
  for (int j = 0; j < kWindow; ++j) {
    weight[j] = j >= none ? weights[j - none] : 0.0f;
    inputs[j] = j >= none && j + 1 < kWindow && first < end ? channel.before(first - (kWindow - 1) + j) : 0.0f;
  }
  for (int t = first; t < end; t += kAhead) {
    float ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ahead[i] = t + i < end ? channel.row(t + i) : 0.0f;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      inputs[kWindow - 1] = ahead[i];
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kWindow; ++j) sum = fmaf(weight[j], inputs[j], sum);
      if (t + i < end) done(t + i, ahead[i], sum);
#pragma unroll
      for (int j = 0; j + 1 < kWindow; ++j) inputs[j] = inputs[j + 1];
    }
  }
}

// The ring gets the last rows.
__device__ __forceinline__ void keep_last(const Channel& channel, int rows) {
  for (int t = max(0, rows - channel.taps); t < rows; ++t) *channel.column(t) = channel.row(t);
}

__device__ __forceinline__ Channel channel_of(const Run& run, const Place& ring, int channels, int taps, int channel) {
  Channel of;
  of.ring = at<float>(run.parts + ring.offset) + channel;
  of.channels = channels;
  of.taps = taps;
  of.start = run.start;
  of.factors = of.done = nullptr;
  of.factors_pitch = of.done_pitch = 0;
  return of;
}

// Units: tiles of rows, and of each the channels, kConvChannels at a time. A quarter of the block has a quarter of the
// rows.
__device__ __forceinline__ void do_conv(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                        unsigned char*) {
  const int channels = in.x_width, taps = in.op.taps;
  const int parts = (channels + kConvChannels - 1) / kConvChannels;
  const int units = row_tiles(pass, kConvRows, Rows::kAll) * parts;
  constexpr int kQuarter = kConvRows / (kThreads / kConvChannels);
  for (int unit = static_cast<int>(block); unit < units; unit += static_cast<int>(blocks)) {
    const RowTile tile = row_tile(pass, unit / parts, kConvRows, Rows::kAll);
    const Run& run = pass.run[tile.run];
    const int c = unit % parts * kConvChannels + static_cast<int>(threadIdx.x) % kConvChannels;
    const int quarter = static_cast<int>(threadIdx.x) / kConvChannels;
    const int first = tile.offset + quarter * kQuarter, end = min(tile.offset + tile.count, first + kQuarter);
    Channel channel = channel_of(run, in.slot, channels, taps, c);
    channel.x = row_of(in.x, in.x_width, run.first_row) + c;
    channel.x_pitch = pitch_of(in.x_width);
    float* const out = row_of(in.out, in.out_width, run.first_row) + c;
    const int64_t out_pitch = pitch_of(in.out_width);
    if (c < channels)
      convolve(channel, at<const float>(in.vectors[0]) + static_cast<int64_t>(c) * taps, first, end,
               [&](int t, float, float sum) { out[t * out_pitch] = quick_silu(sum); });
    meet();  // with many taps the other quarters read the ring, too
    if (c < channels && tile.offset == 0 && quarter == 0) keep_last(channel, run.rows);
  }
}

// Likewise, but where out2 is x a thread has all rows of its channel: inputs would be gone before others read them.
__device__ __forceinline__ void do_short_conv(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                              unsigned char*) {
  const int channels = in.out_width, taps = in.op.taps;
  const bool in_place = in.out2 == in.x || in.out2 == in.y;
  const int rows = in_place ? INT32_MAX / 2 : kConvRows, quarters = kThreads / kConvChannels;
  const int parts = (channels + kConvChannels - 1) / kConvChannels;
  const int units = row_tiles(pass, rows, Rows::kAll) * parts;
  for (int unit = static_cast<int>(block); unit < units; unit += static_cast<int>(blocks)) {
    const RowTile tile = row_tile(pass, unit / parts, rows, Rows::kAll);
    const Run& run = pass.run[tile.run];
    const int c = unit % parts * kConvChannels + static_cast<int>(threadIdx.x) % kConvChannels;
    const int quarter = static_cast<int>(threadIdx.x) / kConvChannels;
    int first = tile.offset, end = tile.offset + tile.count;
    if (!in_place) {
      first += quarter * (kConvRows / quarters);
      end = min(end, first + kConvRows / quarters);
    } else if (quarter != 0) {
      end = first;
    }
    Channel channel = channel_of(run, in.slot, channels, taps, c);
    channel.x = row_of(in.x, in.x_width, run.first_row) + c;
    channel.x_pitch = pitch_of(in.x_width);
    channel.factors = row_of(in.y, in.y_width, run.first_row) + c;
    channel.factors_pitch = pitch_of(in.y_width);
    const float* const z = row_of(in.z, in.z_width, run.first_row) + c;
    float* const out = row_of(in.out, in.out_width, run.first_row) + c;
    float* const product = row_of(in.out2, in.out2_width, run.first_row) + c;
    const int64_t z_pitch = pitch_of(in.z_width), out_pitch = pitch_of(in.out_width);
    const int64_t product_pitch = pitch_of(in.out2_width);
    channel.done = in_place ? product : nullptr;
    channel.done_pitch = product_pitch;
    if (c < channels)
      convolve(channel, at<const float>(in.vectors[0]) + static_cast<int64_t>(c) * taps, first, end,
               [&](int t, float input, float sum) {
                 product[t * product_pitch] = input;
                 out[t * out_pitch] = z[t * z_pitch] * sum;
               });
    meet();
    if (c >= channels || tile.offset != 0 || quarter != 0) continue;
    if (in_place) {
      channel.x = product;
      channel.x_pitch = product_pitch;
      channel.factors = nullptr;
    }
    keep_last(channel, run.rows);
  }
}

}  // namespace baton::cuda
