// From logits to the next token, and on.
#pragma once

#include "baton/sample/draw_weight.h"
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

__device__ __forceinline__ const uint32_t* banned_of(const Pass& pass, int32_t row) {
  return pass.rules == 0 ? nullptr : at<const uint32_t>(at<const DrawRule>(pass.rules)[row].banned);
}
// A bit for each of four ids that are there and not banned.
__device__ __forceinline__ uint32_t open_of(const uint32_t* banned, int32_t id, int32_t width) {
  const uint32_t there = width - id >= 4 ? 15u : (1u << (width - id)) - 1;
  return banned == nullptr ? there : there & ~(banned[id / 32] >> (id % 32));
}

// Of every `step`th four of a row.
__device__ __forceinline__ uint64_t thread_max(const float* x, const uint32_t* banned, int32_t width, int32_t first,
                                               int32_t step) {
  float best = -HUGE_VALF;
  int32_t id = -1;
  bool finite = true;
  for (int32_t i = 4 * first; i < width; i += 4 * step) {
    float v[4];
    rows::load<4>(x + i, v);
    const uint32_t open = open_of(banned, i, width);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (i + k >= width) break;
      finite = finite && isfinite(v[k]);
      if (v[k] > best && (open >> k & 1) != 0) best = v[k], id = i + k;
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
// As many blocks as there are for each then share a row. Without, or with more rows, a block has a row.
__device__ inline void do_argmax(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                 unsigned char* shared) {
  auto* const partial = reinterpret_cast<uint64_t*>(shared);
  const int32_t width = instruction.x_width, thread = static_cast<int32_t>(threadIdx.x), count = pass.rows_out;
  const bool together = instruction.scratch != 0 && count <= kRunsMax;
  const int32_t all = static_cast<int32_t>(blocks), parts = together ? max(1, all / max(count, 1)) : 1;
  auto* const best = at<unsigned long long>(instruction.scratch);
  for (int32_t unit = static_cast<int32_t>(block); unit < count * parts; unit += all) {
    const int32_t r = unit / parts, part = unit % parts;
    const uint64_t own = draws::thread_max(row_of(instruction.x, width, r), draws::banned_of(pass, r), width,
                                           part * kThreads + thread, parts * kThreads);
    const uint64_t key = draws::block_max(own, partial);
    if (thread != 0) continue;
    if (together) {
      atomicMax(best + 1 + r, static_cast<unsigned long long>(key));
    } else {
      *draws::drawn_at(pass, r) = id_of_draw(key);
    }
  }
  if (!together) {
    meet();
    return;
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

namespace draws {

// As the host has it: nothing is contracted.
__device__ __forceinline__ float penalised(float logit, int32_t times, const DrawRule& rule) {
  constexpr float kMost = 3.402823466e38f;
  const float scaled = logit > 0 ? __fdiv_rn(logit, rule.repeat) : __fmul_rn(logit, rule.repeat);
  const float less = __fadd_rn(__fmul_rn(static_cast<float>(times), rule.frequency), rule.presence);
  return fminf(fmaxf(__fadd_rn(scaled, -less), -kMost), kMost);
}

}  // namespace draws

static_assert(kWindowMax <= kThreads);

// A block has a row. What is not finite stays so.
__device__ inline void do_penalise(const Instruction& instruction, const Pass& pass, uint32_t block, uint32_t blocks,
                                   unsigned char*) {
  if (pass.rules == 0) return;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (auto r = static_cast<int32_t>(block); r < pass.rows_out; r += static_cast<int32_t>(blocks)) {
    const DrawRule& rule = at<const DrawRule>(pass.rules)[r];
    if (rule.window == 0) continue;
    DrawWindow& window = at<DrawWindow>(pass.windows)[r];
    float* const x = row_of(instruction.x, instruction.x_width, r);
    const int32_t count = min(window.drawn, rule.window);
    const bool has_one = thread < count;
    const int32_t id = has_one ? window.ids[thread] : 0;
    const float logit = x[id];
    if (has_one) window.logits[thread] = logit;
    int32_t times = 0;
    for (int32_t i = 0; i < count; ++i) times += window.ids[i] == id ? 1 : 0;
    meet();  // behind the readers of the same id, who write the same
    if (has_one && isfinite(logit)) x[id] = draws::penalised(logit, times, rule);
  }
}

namespace draws {

// use(value, id) for the ids of the thread that may be drawn, in order; loads of several fours are under way at a time.
template <class Use>
__device__ __forceinline__ void for_own(const float* x, const uint32_t* banned, int32_t width, const Use& use) {
  constexpr int kFours = 8;
  for (int32_t first = 4 * static_cast<int32_t>(threadIdx.x); first < width; first += 4 * kThreads * kFours) {
    float v[kFours][4];
    uint32_t open[kFours];
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      const int32_t i = first + 4 * kThreads * j;
      open[j] = i < width ? open_of(banned, i, width) : 0;
      if (i < width) rows::load<4>(x + i, v[j]);
    }
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if ((open[j] >> k & 1) != 0) use(v[j][k], first + 4 * kThreads * j + k);
      }
    }
  }
}

// The largest first; count: a power of two.
__device__ __forceinline__ void sort_down(uint64_t* keys, int32_t count) {
  for (int32_t size = 2; size <= count; size *= 2) {
    for (int32_t by = size / 2; by > 0; by /= 2) {
      for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count / 2; i += kThreads) {
        const int32_t low = 2 * i - (i & (by - 1)), high = low + by;
        const uint64_t a = keys[low], b = keys[high];
        if (((low & size) == 0) == (a < b)) keys[low] = b, keys[high] = a;
      }
      meet();
    }
  }
}

__device__ __forceinline__ uint64_t halves_changed(uint64_t key) { return key << 32 | key >> 32; }

struct Shared {
  uint64_t keys[kDrawAmong];
  uint64_t weights[kDrawAmong];
  uint64_t largest[kThreads];  // of each thread
  uint64_t partial[kWarps];    // sums of weights
  int32_t count;               // of candidates, then of those that are kept; kUndecided
};
static_assert(sizeof(Shared) <= kDrawShared);

// How many of `count` candidates, the likeliest first, top_k and top_p keep. `sum`: of all weights, where top_k does
// not say of what. whole: there are no others. One thread.
__device__ inline int32_t kept_of(const DrawRule& rule, const uint64_t* weights, int32_t count, uint64_t sum,
                                  bool whole) {
  const bool by_count = rule.top_k > 0;
  int32_t kept = by_count ? min(count, rule.top_k) : count;
  if (rule.top_p < 1) {
    if (by_count) {
      sum = 0;
      for (int32_t i = 0; i < kept; ++i) sum += weights[i];
    }
    const uint64_t least = least_sum(rule.top_p, sum);
    uint64_t so_far = 0;
    for (int32_t i = 0; i < kept; ++i) {
      so_far += weights[i];
      if (so_far >= least) return i + 1;
    }
    return kUndecided;
  }
  return by_count || whole || is_below(weights[count - 1], rule.min_weight) ? kept : kUndecided;
}

struct Candidates {
  int32_t count;
  bool whole;    // these are all
  uint64_t sum;  // of all weights, in thread 0; where top_k does not say of what
};

// Into shared.keys, as many as there is room for, in no order. One block; top: the largest value that may be drawn,
// finite as all are.
__device__ inline Candidates find_candidates(const float* x, int32_t width, float top, const DrawRule& rule,
                                             Shared& shared) {
  const auto* const banned = at<const uint32_t>(rule.banned);
  const double plain = draw_scale(1.0f);
  const bool sums = rule.top_k == 0 && rule.top_p < 1;
  float best = -HUGE_VALF;
  int32_t best_id = -1;
  uint64_t sum = 0;
  for_own(x, banned, width, [&](float value, int32_t id) {
    if (value > best) best = value, best_id = id;
    if (sums) sum += draw_weight(top - value, plain);
  });
  const uint64_t own = best_id < 0 ? 0 : draw_key(best, static_cast<uint32_t>(best_id));
  shared.largest[threadIdx.x] = own;
  if (threadIdx.x == 0) shared.count = 0;
  meet();
  sort_down(shared.largest, kThreads);
  const uint64_t least = shared.largest[(rule.top_k > 0 ? rule.top_k : kDrawTopMax) - 1];
  if (own != 0 && own >= least) {
    const float about = least == 0 ? -HUGE_VALF : value_of_draw(least);
    for_own(x, banned, width, [&](float value, int32_t id) {
      if (value < about) return;
      const uint64_t key = draw_key(value, static_cast<uint32_t>(id));
      if (key < least) return;
      const int32_t place = atomicAdd(&shared.count, 1);
      if (place < kDrawAmong) shared.keys[place] = key;
    });
  }
#pragma unroll
  for (int i = 16; i > 0; i >>= 1) sum += __shfl_xor_sync(kAll, sum, i);
  if (lane() == 0) shared.partial[warp()] = sum;
  meet();
  if (threadIdx.x == 0) {
    for (int i = 1; i < kWarps; ++i) sum += shared.partial[i];  // its own is the first
  }
  return {shared.count, least == 0, sum};
}

// The id that is drawn, in thread 0; kUndecided in all.
__device__ inline int32_t draw_row(const float* x, int32_t width, float top, const DrawRule& rule, uint64_t number,
                                   Shared& shared) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const Candidates found = find_candidates(x, width, top, rule, shared);
  if (found.count > kDrawAmong) return kUndecided;
  int32_t places = 2;
  while (places < found.count) places *= 2;
  for (int32_t i = found.count + thread; i < places; i += kThreads) shared.keys[i] = 0;
  meet();
  sort_down(shared.keys, places);
  for (int32_t i = thread; i < found.count; i += kThreads)
    shared.weights[i] = draw_weight(top - value_of_draw(shared.keys[i]), draw_scale(1.0f));
  meet();
  if (thread == 0) shared.count = kept_of(rule, shared.weights, found.count, found.sum, found.whole);
  meet();
  const int32_t kept = shared.count;
  if (kept < 0) return kUndecided;
  const bool by_id = rule.top_k == 0 && rule.top_p == 1;  // neither sorts them
  for (int32_t i = thread; i < places; i += kThreads) {
    const bool stays = i < kept && shared.weights[i] >= rule.min_weight;
    shared.keys[i] = !stays ? 0 : by_id ? halves_changed(shared.keys[i]) : shared.keys[i];
  }
  meet();
  if (by_id) sort_down(shared.keys, places);
  for (int32_t i = thread; i < places; i += kThreads) {
    const uint64_t key = by_id ? halves_changed(shared.keys[i]) : shared.keys[i];
    shared.keys[i] = key;
    shared.weights[i] = key == 0 ? 0 : draw_weight(top - value_of_draw(key), rule.scale);
  }
  meet();
  if (thread != 0) return 0;
  uint64_t total = 0;
  for (int32_t i = 0; i < places; ++i) total += shared.weights[i];
  uint64_t left = __umul64hi(number, total);
  int32_t drawn = 0;
  for (; left >= shared.weights[drawn]; ++drawn) left -= shared.weights[drawn];
  return id_of_draw(shared.keys[drawn]);
}

// Takes back what do_penalise did to a row. One block.
__device__ inline void remember(float* x, int32_t id, const DrawRule& rule, DrawWindow& window) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < min(window.drawn, rule.window)) x[window.ids[thread]] = window.logits[thread];
  meet();
  if (thread != 0 || id < 0) return;
  window.ids[window.drawn % rule.window] = id;
  ++window.drawn;
}

}  // namespace draws

// A block has a row. Apart, so that it takes no registers from what a list does more often.
__device__ __noinline__ inline void do_draw(const Instruction& instruction, const Pass& pass, uint32_t block,
                                            uint32_t blocks, unsigned char* shared) {
  if (pass.rules == 0) return;
  const int32_t width = instruction.x_width;
  for (auto r = static_cast<int32_t>(block); r < pass.rows_out; r += static_cast<int32_t>(blocks)) {
    const DrawRule rule = at<const DrawRule>(pass.rules)[r];
    float* const x = row_of(instruction.x, width, r);
    int32_t id = *draws::drawn_at(pass, r);
    if (rule.scale != 0 && id >= 0) {
      const uint64_t number = at<const uint64_t>(pass.numbers)[int64_t{pass.step} * pass.rows_out + r];
      id = draws::draw_row(x, width, x[id], rule, number, *reinterpret_cast<draws::Shared*>(shared));
      if (threadIdx.x == 0) *draws::drawn_at(pass, r) = id;
      meet();
    }
    if (rule.window != 0) draws::remember(x, id, rule, at<DrawWindow>(pass.windows)[r]);
  }
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
