// From logits to the next token, and on.
#pragma once

#include "baton/unit/cuda/kernels/rows.cuh"

namespace baton::cuda {
namespace draws {

__device__ __forceinline__ uint64_t max_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

// The largest key of the block's threads, in thread 0.
__device__ __forceinline__ uint64_t block_max(uint64_t key, uint64_t* partial) {
#pragma unroll
  for (int i = 16; i > 0; i >>= 1) key = max_of(key, __shfl_xor_sync(kAll, key, i));
  meet();  // behind the reader of the keys before
  if (lane() == 0) partial[warp()] = key;
  meet();
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < kWarps; ++i) key = max_of(key, partial[i]);
  }
  return key;
}

// Of every `step`th four of a row.
__device__ __forceinline__ uint64_t thread_max(const float* x, int32_t width, int32_t first, int32_t step) {
  float best = -HUGE_VALF;
  int32_t id = -1;
  bool finite = true;
  for (int32_t i = 4 * first; i < width; i += 4 * step) {
    float v[4];
    rows::load<4>(x + i, v);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (i + k >= width) break;
      finite = finite && isfinite(v[k]);
      if (v[k] > best) best = v[k], id = i + k;
    }
  }
  if (!finite) return draw_key(HUGE_VALF, 0);
  return id < 0 ? 0 : draw_key(best, static_cast<uint32_t>(id));
}

__device__ __forceinline__ int32_t* drawn_at(const Pass& pass, int32_t row) {
  return at<int32_t>(pass.drawn) + int64_t{pass.step} * pass.rows_out + row;
}

}  // namespace draws

// Scratch, where there is any: uint64 [1 + kRunsMax], zero before and after, the first a count of blocks that are done.
// All blocks then share each row. Without, or with more rows, a block has a row.
__device__ inline void do_argmax(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                 unsigned char* shared) {
  auto* const partial = reinterpret_cast<uint64_t*>(shared);
  const int32_t width = instruction.x_width, thread = static_cast<int32_t>(threadIdx.x), count = pass.rows_out;
  const bool together = instruction.scratch != 0 && count <= kRunsMax;
  if (!together) {
    for (int32_t r = static_cast<int32_t>(block); r < count; r += static_cast<int32_t>(blocks)) {
      const uint64_t own = draws::thread_max(row_of(instruction.x, width, r), width, thread, kThreads);
      const uint64_t key = draws::block_max(own, partial);
      if (thread == 0) *draws::drawn_at(pass, r) = id_of_draw(key);
    }
    meet();
    return;
  }
  auto* const best = at<unsigned long long>(instruction.scratch);
  for (int32_t r = 0; r < count; ++r) {
    const uint64_t own =
        draws::thread_max(row_of(instruction.x, width, r), width, static_cast<int32_t>(block) * kThreads + thread,
                          static_cast<int32_t>(blocks) * kThreads);
    const uint64_t key = draws::block_max(own, partial);
    if (thread == 0) atomicMax(best + 1 + r, static_cast<unsigned long long>(key));
  }
  auto* const last = reinterpret_cast<uint32_t*>(partial + kWarps);
  if (thread == 0) {
    __threadfence();
    *last = atomicInc(reinterpret_cast<uint32_t*>(best), blocks - 1) == blocks - 1 ? 1 : 0;
    __threadfence();
  }
  meet();
  if (*last != 0 && thread < count) *draws::drawn_at(pass, thread) = id_of_draw(atomicExch(best + 1 + thread, 0ull));
  meet();
}

// The first block alone. Runs that go on do so together, or none does.
__device__ inline void do_advance(Address pass_at, uint32_t block) {
  if (block != 0) return;
  Pass& pass = *at<Pass>(pass_at);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  bool stops = pass.stopped != 0;
  for (int32_t i = thread; i < pass.rows_out; i += kThreads) {
    const int32_t run = at<const int32_t>(pass.run_of_row)[at<const int32_t>(pass.out_rows)[i]];
    const int32_t id = *draws::drawn_at(pass, i);
    stops = stops || id < 0;
    for (int32_t k = 0; k < pass.stop_count; ++k)
      stops = stops || at<const int32_t>(pass.stops)[int64_t{run} * kStopsMax + k] == id;
  }
  if (meet_or(stops ? 1 : 0) != 0) {
    if (thread == 0) pass.stopped = 1;
    return;
  }
  for (int32_t i = thread; i < pass.rows_out; i += kThreads)
    at<int32_t>(pass.tokens)[at<const int32_t>(pass.out_rows)[i]] = *draws::drawn_at(pass, i);
  for (int32_t i = thread; i < pass.runs; i += kThreads) ++pass.run[i].start;
  meet();  // behind the readers of the step
  if (thread == 0) ++pass.step;
}

}  // namespace baton::cuda
