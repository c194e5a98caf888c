// Rows of x on their way into a product: a block puts each through the prologue and hands the values on.
#pragma once

#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/device.cuh"

namespace baton::cuda {

// Over all threads of a block; `scratch` has room for a float of each warp.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  x = warp_sum(x);
  meet();
  if (lane() == 0) scratch[warp()] = x;
  meet();
  return warp_sum(lane() < kThreads / 32 ? scratch[lane()] : 0.0f);
}

// Mean (of kLayer; else 0) and what a group of `width` values is multiplied with, by `count` threads that have the sum
// of what each of them brings from `sum`.
template <class Sum>
__device__ __forceinline__ float2 norm_of(const float* x, int width, float eps, bool centred, int first, int step,
                                          Sum&& sum) {
  float mean = 0, squares = 0;
  if (centred) {
    for (int i = first; i < width; i += step) mean += x[i];
    mean = sum(mean) / static_cast<float>(width);
  }
  for (int i = first; i < width; i += step) squares = fmaf(x[i] - mean, x[i] - mean, squares);
  return {mean, rsqrtf(sum(squares) / static_cast<float>(width) + eps)};
}

// Calls put(i, value) for each value of a row behind the prologue; i from 0 to x_width, each once.
template <class Put>
__device__ __forceinline__ void prologue_row(const Instruction& instruction, int64_t row, float* scratch, Put&& put) {
  const int width = instruction.x_width;
  const float* const x = row_of(instruction.x, width, row);
  const float* const y = instruction.y == 0 ? nullptr : row_of(instruction.y, instruction.y_width, row);
  const float* const scale = at<float>(instruction.vectors[0]);
  const float* const shift = at<float>(instruction.vectors[1]);
  const int thread = static_cast<int>(threadIdx.x);
  const int group = instruction.op.width;
  switch (instruction.prologue) {
    case Prologue::kNone:
      for (int i = thread; i < width; i += kThreads) put(i, x[i]);
      return;
    case Prologue::kGate: {
      const int shared = group > 1 ? group : 1;
      for (int i = thread; i < width; i += kThreads) put(i, x[i] * sigmoid(y[i / shared]));
      return;
    }
    case Prologue::kRms:
    case Prologue::kLayer:
    case Prologue::kGated:
      break;
  }
  const bool centred = instruction.prologue == Prologue::kLayer, gated = instruction.prologue == Prologue::kGated;
  const auto finish = [&](int from, int i, float2 norm) {
    float value = (x[from + i] - norm.x) * norm.y * scale[i];
    if (centred) value += shift[i];
    if (gated) value *= silu(y[from + i]);
    put(from + i, value);
  };
  if (group >= 512) {
    for (int from = 0; from < width; from += group) {
      const float2 norm = norm_of(x + from, group, instruction.op.eps, centred, thread, kThreads,
                                  [&](float part) { return block_sum(part, scratch); });
      for (int i = thread; i < group; i += kThreads) finish(from, i, norm);
    }
    return;
  }
  for (int from = static_cast<int>(warp()) * group; from < width; from += kThreads / 32 * group) {
    const float2 norm = norm_of(x + from, group, instruction.op.eps, centred, static_cast<int>(lane()), 32,
                                [](float part) { return warp_sum(part); });
    for (int i = static_cast<int>(lane()); i < group; i += 32) finish(from, i, norm);
  }
}

// Four values from i on; zeros where there is nothing.
__device__ __forceinline__ float4 four_of(const float* from, int i, bool there) {
  float4 value = make_float4(0, 0, 0, 0);
  if (there) value = *reinterpret_cast<const float4*>(from + i);
  return value;
}

// A row of values as prologue_fours_of reads it.
struct RowOfValues {
  const float* from;

  __device__ __forceinline__ float4 ask(int i, bool there) const { return four_of(from, i, there); }
  __device__ __forceinline__ void take(float4&, int, bool) const {}
};

// The same for what most rows are, those that by_fours names: values four at a time, each read once, up to `end` with
// zeros behind the row. Of kRms only the scale is in the values; squares[warp] is what each warp sums of the row's, of
// which comes what the products have to be multiplied with (staged_rows.cuh). What of the row may have to come yet is
// asked for, ask(i, there), kAhead fours of a lane at a time, 1 or 2, before take(four, i, there) waits for any; a warp
// calls these and put together, for what lies behind `end`, too. Of two at a time, meanwhile() once, by every warp,
// between the first asking and the first waiting.
template <int kAhead, class X, class Gates, class Put, class Meanwhile>
__device__ __forceinline__ void prologue_fours_of(const Instruction& instruction, int end, float* squares_of,
                                                  const X& x_of, const Gates& gates_of, const Put& put,
                                                  const Meanwhile& meanwhile) {
  const int width = instruction.x_width;
  const bool gated = instruction.prologue == Prologue::kGated, rms = instruction.prologue == Prologue::kRms;
  const bool gate_alone = instruction.prologue == Prologue::kGate;
  const int first = static_cast<int>(threadIdx.x) * 4;
  const float* const scales = at<float>(instruction.vectors[0]);
  const auto squares = [](const float4& x) { return fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, x.w * x.w))); };
  float sum = 0;
  const auto work_on = [&](int i, float4 x) {
    float4 scale = make_float4(0, 0, 0, 0), gate = scale;
    if (rms || gated) scale = four_of(scales, gated ? i % 128 : i, i < width);
    if (gated || gate_alone) gate = gates_of.ask(i, i < width);
    if (gated || gate_alone) gates_of.take(gate, i, i < width);
    x_of.take(x, i, i < width);
    if (rms) {
      sum += squares(x);
      x = make_float4(x.x * scale.x, x.y * scale.y, x.z * scale.z, x.w * scale.w);
    } else if (gated) {  // a warp has a group
      const float by = rsqrtf(warp_sum(squares(x)) / 128.0f + instruction.op.eps);
      if (i < width)
        x = make_float4(x.x * by * scale.x * silu(gate.x), x.y * by * scale.y * silu(gate.y),
                        x.z * by * scale.z * silu(gate.z), x.w * by * scale.w * silu(gate.w));
    } else if (gate_alone) {
      x = make_float4(x.x * sigmoid(gate.x), x.y * sigmoid(gate.y), x.z * sigmoid(gate.z), x.w * sigmoid(gate.w));
    }
    put(i, x);
  };
  constexpr int kStep = 4 * kThreads;
  if constexpr (kAhead == 2) {
    const auto is_there = [&](int i) { return i - static_cast<int>(lane()) * 4 < end; };
    int i = first;
    float4 x = x_of.ask(i, i < width), next = x_of.ask(i + kStep, i + kStep < width);
    meanwhile();
#pragma unroll 1
    while (is_there(i)) {
      work_on(i, x);
      i += kStep;
      if (!is_there(i)) break;
      work_on(i, next);
      i += kStep;
      if (!is_there(i)) break;
      x = x_of.ask(i, i < width), next = x_of.ask(i + kStep, i + kStep < width);
    }
  } else {
#pragma unroll 1
    for (int i = first; i - static_cast<int>(lane()) * 4 < end; i += kStep) {
      float4 x = x_of.ask(i, i < width);
      work_on(i, x);
    }
  }
  if (!rms) return;
  sum = warp_sum(sum);
  if (lane() == 0) squares_of[warp()] = sum;
}

template <class Put>
__device__ __forceinline__ void prologue_fours(const Instruction& instruction, int64_t row, int end, float* squares_of,
                                               const Put& put) {
  const float* const x = row_of(instruction.x, instruction.x_width, row);
  const float* const gates = instruction.y != 0 ? row_of(instruction.y, instruction.y_width, row) : nullptr;
  prologue_fours_of<1>(instruction, end, squares_of, RowOfValues{x}, RowOfValues{gates}, put, [] {});
}

}  // namespace baton::cuda
