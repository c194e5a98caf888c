// Attention of prompts on tensor cores (wgmma on 9.0, mma elsewhere): a block has 64 rows of a run and one head, a warp
// 16 of them. Keys come in tiles of a page, 64 of them, in order; a row's highest score and sums move from tile to
// tile, and a tile of which a row sees nothing changes no bit of it, so that neighbours do not show. Queries and what
// scores become are rounded to the type of keys and values. (Dao, "FlashAttention-2", 2023.)
#pragma once

#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/tensor.cuh"
#include "baton/unit/cuda/kernels/wgmma.cuh"
#include "baton/unit/cuda/tile_layout.h"

namespace baton::cuda {

template <int kWidth, bool kBf16>
class AttendTile {
 public:
  __device__ AttendTile(const Instruction& in, const Run& run, const RowTile& tile, int head, unsigned char* shared)
      : in_(in), pages_(at<const Address>(run.pages)), head_(head) {
    kv_head_ = head / (in.op.heads / in.op.kv_heads);
    const uint32_t begin = shared_address(shared);
    queries_ = (begin + 1023) & ~1023u;  // wgmma's: see tile_layout.h
    keys_ = queries_ + kTileBytes;
    values_ = keys_ + kTileBytes;
    shared_ = shared + (queries_ - begin);
    first_row_ = run.first_row + tile.offset;
    rows_ = tile.count;
    start_ = run.start + tile.offset;
    end_ = run.start + run.rows;
    row_ = static_cast<int>(warp() * 16 + lane() / 4);
  }

  __device__ void run() {
    const Op& op = in_.op;
    const int first = first_seen(op.window, op.chunk, start_) / kPageTokens;
    const int last = (start_ + rows_ - 1) / kPageTokens;
    bring(keys_, in_.slot, first);
    load_queries();
    for (int tile = first; tile <= last; ++tile) {
      bring(values_, in_.slot2, tile);
      wait_for_copies();
      float scores[32] = {};
      multiply_keys(scores);
      __syncthreads();
      if (tile < last) {
        bring(keys_, in_.slot, tile + 1);
      } else {
        copies_end_group();
      }
      weigh(tile, scores);
      wait_for_copies();
      add_values(scores);
      __syncthreads();
    }
    copies_wait<0>();
    write();
  }

 private:
  static constexpr int kPieces = kWidth / 8, kParts = kWidth / 64;
  static constexpr uint32_t kTileBytes = 64 * kWidth * 2, kPartBytes = 64 * 64 * 2;
  static constexpr float kLog2E = 1.44269504f;

  // Byte of a piece of 8 values: 64 columns of all rows lie together, as tile_layout.h has them.
  __device__ __forceinline__ static uint32_t place(int row, int piece) {
    return static_cast<uint32_t>(piece / 8) * kPartBytes + tile_offset(row, piece & 7);
  }
  // All but the last that were asked for.
  __device__ __forceinline__ static void wait_for_copies() {
    copies_wait<1>();
    leave_to_copies();  // wgmma reads as they write
    __syncthreads();
  }

  // A page's keys or values; what is not there, zeros.
  __device__ __forceinline__ void bring(uint32_t to, const Place& kept, int tile) const {
    const Address page = pages_[tile] + kept.offset;
    const auto* const from =
        at<const unsigned char>(page) + static_cast<int64_t>(kv_head_) * kPageTokens * kept.row_bytes;
    const int there = end_ - tile * kPageTokens, pieces = (in_.op.width + 7) / 8;
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.x); i < 64 * kPieces; i += static_cast<int>(kAttendTileThreads)) {
      const int row = i / kPieces, piece = i % kPieces;
      const bool wanted = row < there && piece < pieces;
      copy_ahead(to + place(row, piece), wanted ? from + row * kept.row_bytes + piece * 16 : from, wanted);
    }
    copies_end_group();
  }

  __device__ __forceinline__ void load_queries() const {
    constexpr int kStep = static_cast<int>(kAttendTileThreads), kAtOnce = 64 * kPieces / kStep > 8 ? 8 : 4;
    static_assert(64 * kPieces % (kAtOnce * kStep) == 0);
    const int width = in_.op.width;
#pragma unroll 1
    for (int begin = static_cast<int>(threadIdx.x); begin < 64 * kPieces; begin += kAtOnce * kStep) {
      float q[kAtOnce][8] = {};
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) load_piece((begin + k * kStep) / kPieces, begin + k * kStep, width, q[k]);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        *reinterpret_cast<uint4*>(shared_ + place((begin + k * kStep) / kPieces, (begin + k * kStep) % kPieces)) =
            make_uint4(narrow_pair<kBf16>(q[k][0], q[k][1]), narrow_pair<kBf16>(q[k][2], q[k][3]),
                       narrow_pair<kBf16>(q[k][4], q[k][5]), narrow_pair<kBf16>(q[k][6], q[k][7]));
    }
  }
  // Eight values of a query; zeros stay where it has none.
  __device__ __forceinline__ void load_piece(int row, int number, int width, float (&q)[8]) const {
    const int first = number % kPieces * 8;
    if (row >= rows_ || first >= width) return;
    const float* const from = row_of(in_.x, in_.x_width, first_row_ + row) + head_ * width + first;
    if (width % 8 != 0) return load8(from, width - first, q);
    const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
    q[0] = low.x, q[1] = low.y, q[2] = low.z, q[3] = low.w;
    q[4] = high.x, q[5] = high.y, q[6] = high.z, q[7] = high.w;
  }

  // scores[4 n + i]: rows row_ (0, 1) and row_ + 8 (2, 3), keys 8 n + lane % 4 * 2 and the next. Zeros before.
  __device__ __forceinline__ void multiply_keys(float (&scores)[32]) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    wgmma_touch(scores);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kWidth / 16; ++k) {
      const uint32_t along = k / 4 * kPartBytes + k % 4 * 32;
      wgmma_pairs<kBf16>(scores, tile_descriptor(queries_ + along), tile_descriptor(keys_ + along));
    }
    wgmma_commit();
    wgmma_touch(scores);
    wgmma_wait<0>();
    wgmma_touch(scores);
#else
    const int of = static_cast<int>(lane()), row = static_cast<int>(warp()) * 16;
#pragma unroll 4
    for (int k = 0; k < kWidth / 16; ++k) {
      uint32_t a[4], b[4];
      load_matrices(queries_ + place(row + (of & 15), 2 * k + (of >> 4)), a);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        load_matrices(keys_ + place(n * 16 + (of & 7) + (of >> 4) * 8, 2 * k + (of >> 3 & 1)), b);
        multiply_add<kBf16>(four(scores, 2 * n), a, b[0], b[1]);
        multiply_add<kBf16>(four(scores, 2 * n + 1), a, b[2], b[3]);
      }
    }
#endif
  }
  __device__ __forceinline__ static float (&four(float (&of)[32], int n))[4] {
    return *reinterpret_cast<float(*)[4]>(of + 4 * n);
  }

  // Scores become powers of two's exponents, then what values count for; `half`: row_ or row_ + 8.
  __device__ __forceinline__ void weigh_row(int tile, int half, float (&scores)[32]) {
    const int position = start_ + row_ + 8 * half, first = static_cast<int>(lane()) % 4 * 2;
    const int from = first_seen(in_.op.window, in_.op.chunk, position) - tile * kPageTokens - first;
    const int to = position - tile * kPageTokens - first;
    float highest = highest_[half];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores[4 * n + 2 * half + i];
        score = 8 * n + i >= from && 8 * n + i <= to ? score * kLog2E : no_score();
        highest = fmaxf(highest, score);
      }
    }
    highest = fmaxf(highest, __shfl_xor_sync(kAll, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(kAll, highest, 2));
    const float kept = highest == highest_[half] ? 1.0f : exp2f(highest_[half] - highest);
    const float base = highest == no_score() ? 0.0f : highest;
    highest_[half] = highest;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores[4 * n + 2 * half + i];
        score = exp2f(score - base);
        sum += score;
      }
    }
    sum_[half] = fmaf(sum_[half], kept, sum);
    if (__all_sync(kAll, kept == 1.0f)) return;
#pragma unroll
    for (int d = 0; d < kPieces; ++d) {
      out_[d / 8][d % 8 * 4 + 2 * half] *= kept;
      out_[d / 8][d % 8 * 4 + 2 * half + 1] *= kept;
    }
  }
  __device__ __forceinline__ void weigh(int tile, float (&scores)[32]) {
    const float scale = in_.op.scale, cap = in_.op.cap;
#pragma unroll
    for (int i = 0; i < 32; ++i) scores[i] *= scale;
    if (cap != 0) {  // few models have one: apart, so that others do not read past it
#pragma unroll
      for (int i = 0; i < 32; ++i) scores[i] = capped(scores[i], cap);
    }
    weigh_row(tile, 0, scores);
    weigh_row(tile, 1, scores);
  }

  __device__ __forceinline__ void add_values(const float (&weights)[32]) {
    uint32_t a[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[k][i] = narrow_pair<kBf16>(weights[8 * k + 2 * i], weights[8 * k + 2 * i + 1]);
    }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#pragma unroll
    for (int part = 0; part < kParts; ++part) wgmma_touch(out_[part]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        wgmma_across<kBf16>(out_[part], a[k], tile_descriptor(values_ + part * kPartBytes + k * 16 * 128));
    }
    wgmma_commit();
#pragma unroll
    for (int part = 0; part < kParts; ++part) wgmma_touch(out_[part]);
    wgmma_wait<0>();
#pragma unroll
    for (int part = 0; part < kParts; ++part) wgmma_touch(out_[part]);
#else
    const int of = static_cast<int>(lane());
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int d = 0; d < kPieces; d += 2) {
        uint32_t b[4];
        load_matrices_turned(values_ + place(k * 16 + (of & 15), d + (of >> 4)), b);
        multiply_add<kBf16>(four(out_[d / 8], d % 8), a[k], b[0], b[1]);
        multiply_add<kBf16>(four(out_[d / 8], d % 8 + 1), a[k], b[2], b[3]);
      }
    }
#endif
  }

  __device__ __forceinline__ void write() {
    const int width = in_.op.width;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(kAll, sum, 1);
      sum += __shfl_xor_sync(kAll, sum, 2);
      const int row = row_ + 8 * half;
      if (row >= rows_) continue;
      const float by = 1.0f / sum;
      float* const out = row_of(in_.out, in_.out_width, first_row_ + row) + head_ * width;
#pragma unroll
      for (int d = 0; d < kPieces; ++d) {
        const int column = d * 8 + static_cast<int>(lane()) % 4 * 2;
        if (column >= width) continue;
        const float2 two =
            make_float2(out_[d / 8][d % 8 * 4 + 2 * half] * by, out_[d / 8][d % 8 * 4 + 2 * half + 1] * by);
        if (width % 2 == 0) {
          *reinterpret_cast<float2*>(out + column) = two;
          continue;
        }
        out[column] = two.x;
        if (column + 1 < width) out[column + 1] = two.y;
      }
    }
  }

  const Instruction& in_;
  const Address* const pages_;
  unsigned char* shared_;
  uint32_t queries_, keys_, values_;
  int head_, kv_head_, first_row_, rows_, start_, end_, row_;
  float out_[kParts][32] = {};
  float highest_[2] = {no_score(), no_score()}, sum_[2] = {};  // of this thread's keys
};

// Blocks: heads of tiles of rows, those that see most first.
template <int kWidth, bool kBf16>
__device__ __forceinline__ void attend_tile_block(const Work& work, unsigned char* shared) {
  const Instruction& in = work.instruction;
  const Pass& pass = *at<const Pass>(work.pass);
  const int tiles = row_tiles(pass, kAttendTileRows, Rows::kPrompts), heads = in.op.heads;
  const int block = static_cast<int>(blockIdx.x);
  if (block >= tiles * heads) return;
  const RowTile tile = row_tile(pass, attend_tile_at(block / heads, tiles, heads), kAttendTileRows, Rows::kPrompts);
  AttendTile<kWidth, kBf16> attend(in, pass.run[tile.run], tile, block % heads, shared);
  attend.run();
}

}  // namespace baton::cuda
