// Attention of rows in plain f32: of encoders, whose keys and values are registers, and of prompts where the keys' type
// or the head's width is none of attention_tile.cuh. A warp has a row; keys come 32 at a time, one each lane.
#pragma once

#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/mixers_geometry.h"

namespace baton::cuda {

inline constexpr int kPlainRows = kThreads / 32;  // of a unit
inline constexpr int kPlainKeys = 32;
static_assert((kPlainRows * kAttendWidthMax + 2 * kPlainKeys * (kAttendWidthMax + 1)) * 4 <= kSharedBytes);

// Keys and values of a run that are registers; positions count from its first row.
struct RegisterKeys {
  static constexpr Rows kWhich = Rows::kAll;
  const Instruction& in;
  const Run& run;
  int kv_head;

  __device__ int position(int row) const { return row; }
  __device__ int first(int position) const { return in.op.window == 0 ? 0 : max(0, position - in.op.window); }
  __device__ int last(int position) const {
    return in.op.window == 0 ? run.rows - 1 : min(run.rows - 1, position + in.op.window);
  }
  __device__ float key(int position, int i) const {
    return row_of(in.y, in.y_width, run.first_row + position)[kv_head * in.op.width + i];
  }
  __device__ float value(int position, int i) const {
    return row_of(in.z, in.z_width, run.first_row + position)[kv_head * in.op.width + i];
  }
};

// Keys and values in pages.
struct PagedKeys {
  static constexpr Rows kWhich = Rows::kPrompts;
  const Instruction& in;
  const Run& run;
  int kv_head;

  __device__ int position(int row) const { return run.start + row; }
  __device__ int first(int position) const { return first_seen(in.op.window, in.op.chunk, position); }
  __device__ int last(int position) const { return position; }
  __device__ float load(const Place& place, int position, int i) const {
    const Address page = at<const Address>(run.pages)[position / kPageTokens] + place.offset;
    const int64_t row = static_cast<int64_t>(kv_head) * kPageTokens + position % kPageTokens;
    const auto* const from = at<const unsigned char>(page) + row * place.row_bytes;
    if (place.form == Form::kF16) return __half2float(reinterpret_cast<const __half*>(from)[i]);
    if (place.form == Form::kBF16) return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(from)[i]);
    return reinterpret_cast<const float*>(from)[i];
  }
  __device__ float key(int position, int i) const { return load(in.slot, position, i); }
  __device__ float value(int position, int i) const { return load(in.slot2, position, i); }
};

// As alibi_slope.
__device__ __forceinline__ float slope_of_head(const Op& op, int head) {
  if (op.alibi == 0.0f) return 0.0f;
  const int n = 1 << (31 - __clz(op.heads));
  const float at = static_cast<float>(head), of = static_cast<float>(n);
  return exp2f(-op.alibi * (head < n ? at + 1.0f : at - of + 0.5f) / of);
}

// A warp's row: what it has seen so far.
struct PlainRow {
  float out[kAttendWidthMax / 32] = {};
  float highest = no_score(), sum = 0;

  // One key each lane; their values are rows of `values`.
  __device__ __forceinline__ void add(float score, bool seen, const float* values, int pitch, int width) {
    const float now = fmaxf(highest, warp_max(seen ? score : no_score()));
    const float weight = seen ? expf(score - now) : 0.0f;
    const float kept = now != highest ? expf(highest - now) : 1.0f;
    highest = now;
    sum = fmaf(sum, kept, weight);
#pragma unroll
    for (int i = 0; i < kAttendWidthMax / 32; ++i) out[i] *= kept;
    for (int key = 0; key < kPlainKeys; ++key) {
      if (!__shfl_sync(kAll, seen, key)) continue;
      const float factor = __shfl_sync(kAll, weight, key);
#pragma unroll
      for (int i = 0; i < kAttendWidthMax / 32; ++i) {
        const int at = static_cast<int>(lane()) + 32 * i;
        if (at < width) out[i] = fmaf(factor, values[key * pitch + at], out[i]);
      }
    }
  }
};

template <class Keys>
__device__ __forceinline__ void attend_rows(const Instruction& in, const RowTile& tile, const Keys& keys, int head,
                                            float* shared) {
  const Op& op = in.op;
  const int width = op.width, pitch = width + 1, first_row = keys.run.first_row + tile.offset;
  float* const queries = shared;  // [rows][width]
  float* const tile_keys = queries + kPlainRows * width;
  float* const tile_values = tile_keys + kPlainKeys * pitch;
  for (int i = static_cast<int>(threadIdx.x); i < tile.count * width; i += kThreads)
    queries[i] = row_of(in.x, in.x_width, first_row + i / width)[head * width + i % width];
  const int mine = static_cast<int>(warp()), position = keys.position(tile.offset + mine);
  const bool active = mine < tile.count;
  const int from = keys.first(position), to = keys.last(position);
  const int begin = keys.first(keys.position(tile.offset)) / kPlainKeys * kPlainKeys;
  const int end = keys.last(keys.position(tile.offset + tile.count - 1)) + 1;
  const float slope = slope_of_head(op, head);
  PlainRow row;
  for (int base = begin; base < end; base += kPlainKeys) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kPlainKeys * width; i += kThreads) {
      const int key = i / width, at = i % width;
      const bool there = base + key < end;
      tile_keys[key * pitch + at] = there ? keys.key(base + key, at) : 0.0f;
      tile_values[key * pitch + at] = there ? keys.value(base + key, at) : 0.0f;
    }
    __syncthreads();
    if (!active || base > to || base + kPlainKeys <= from) continue;
    const int key = base + static_cast<int>(lane());
    float score = 0;
    for (int i = 0; i < width; ++i) score = fmaf(queries[mine * width + i], tile_keys[lane() * pitch + i], score);
    score = capped(score * op.scale, op.cap) - slope * static_cast<float>(abs(key - position));
    row.add(score, key >= from && key <= to, tile_values, pitch, width);
  }
  const float sum = warp_sum(row.sum);
  if (active) {
    float* const out = row_of(in.out, in.out_width, first_row + mine) + head * width;
#pragma unroll
    for (int i = 0; i < kAttendWidthMax / 32; ++i) {
      const int at = static_cast<int>(lane()) + 32 * i;
      if (at < width) out[at] = row.out[i] / sum;
    }
  }
  __syncthreads();
}

template <class Keys>
__device__ __forceinline__ void attend_row_units(const Instruction& in, const Pass& pass, uint32_t block,
                                                 uint32_t blocks, unsigned char* shared) {
  const Op& op = in.op;
  const int units = row_tiles(pass, kPlainRows, Keys::kWhich) * op.heads;
  for (int unit = static_cast<int>(block); unit < units; unit += static_cast<int>(blocks)) {
    const RowTile tile = row_tile(pass, unit / op.heads, kPlainRows, Keys::kWhich);
    const int head = unit % op.heads;
    const Keys keys{in, pass.run[tile.run], head / (op.heads / op.kv_heads)};
    attend_rows(in, tile, keys, head, reinterpret_cast<float*>(shared));
  }
}

__device__ __forceinline__ void do_attend_all(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                              unsigned char* shared) {
  attend_row_units<RegisterKeys>(in, pass, block, blocks, shared);
}

// What attention_tile.cuh does not do.
__device__ __forceinline__ void do_attend_tile(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                               unsigned char* shared) {
  attend_row_units<PagedKeys>(in, pass, block, blocks, shared);
}

}  // namespace baton::cuda
