// Attention of prompts on tensor cores: a block has 64 rows of a run and one head, a warp 16 of them. Keys come in
// tiles of a page, 64 of them, in order; a row's highest score and sums move from tile to tile, and a tile of which a
// row sees nothing changes no bit of it, so that neighbours do not show. Queries and what scores become are rounded to
// the type of keys and values. (Dao, "FlashAttention-2", 2023.)
#pragma once

#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/tensor.cuh"

namespace baton::cuda {

template <int kWidth, bool kBf16>
class AttendTile {
 public:
  __device__ AttendTile(const Instruction& in, const Run& run, const RowTile& tile, int head, unsigned char* shared)
      : in_(in), pages_(at<const Address>(run.pages)), head_(head) {
    kv_head_ = head / (in.op.heads / in.op.kv_heads);
    queries_ = shared_address(shared);
    keys_ = queries_ + kTileBytes;
    values_ = keys_ + kTileBytes;
    shared_ = shared;
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
      copies_wait<1>();
      __syncthreads();
      float scores[8][4];
      multiply_keys(scores);
      __syncthreads();
      if (tile < last) {
        bring(keys_, in_.slot, tile + 1);
      } else {
        copies_end_group();
      }
      weigh(tile, scores);
      copies_wait<1>();
      __syncthreads();
      add_values(scores);
      __syncthreads();
    }
    copies_wait<0>();
    write();
  }

 private:
  static constexpr int kPieces = kWidth / 8;
  static constexpr uint32_t kTileBytes = 64 * kWidth * 2;
  static constexpr float kLog2E = 1.44269504f;

  // A page's keys or values; what is not there, zeros.
  __device__ __forceinline__ void bring(uint32_t to, const Place& place, int tile) const {
    const Address page = pages_[tile] + place.offset;
    const auto* const from =
        at<const unsigned char>(page) + static_cast<int64_t>(kv_head_) * kPageTokens * place.row_bytes;
    const int there = end_ - tile * kPageTokens, pieces = (in_.op.width + 7) / 8;
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.x); i < 64 * kPieces; i += static_cast<int>(kAttendTileThreads)) {
      const int row = i / kPieces, piece = i % kPieces;
      const bool wanted = row < there && piece < pieces;
      copy_ahead(to + piece_at<kPieces>(row, piece), wanted ? from + row * place.row_bytes + piece * 16 : from, wanted);
    }
    copies_end_group();
  }

  __device__ __forceinline__ void load_queries() const {
    const int width = in_.op.width;
    for (int i = static_cast<int>(threadIdx.x); i < 64 * kPieces; i += static_cast<int>(kAttendTileThreads)) {
      const int row = i / kPieces, piece = i % kPieces;
      uint4 narrow = make_uint4(0, 0, 0, 0);
      if (row < rows_ && piece * 8 < width) {
        float q[8];
        load8(row_of(in_.x, in_.x_width, first_row_ + row) + head_ * width + piece * 8, width - piece * 8, q);
        narrow = make_uint4(narrow_pair<kBf16>(q[0], q[1]), narrow_pair<kBf16>(q[2], q[3]),
                            narrow_pair<kBf16>(q[4], q[5]), narrow_pair<kBf16>(q[6], q[7]));
      }
      *reinterpret_cast<uint4*>(shared_ + piece_at<kPieces>(row, piece)) = narrow;
    }
  }

  // scores[n]: rows row_ (0, 1) and row_ + 8 (2, 3), keys 8 n + lane % 4 * 2 and the next.
  __device__ __forceinline__ void multiply_keys(float (&scores)[8][4]) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = 0;
    }
#pragma unroll 4
    for (int k = 0; k < kWidth / 16; ++k) {
      uint32_t a[4], b[4];
      load_matrices(a_address<kPieces>(queries_, static_cast<int>(warp()) * 16, 2 * k), a);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        load_matrices(across_address<kPieces>(keys_, n * 16, 2 * k), b);
        multiply_add<kBf16>(scores[2 * n], a, b[0], b[1]);
        multiply_add<kBf16>(scores[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  // Scores become powers of two's exponents, then what values count for; `half`: row_ or row_ + 8.
  __device__ __forceinline__ void weigh_row(int tile, int half, float (&scores)[8][4]) {
    const Op& op = in_.op;
    const int position = start_ + row_ + 8 * half;
    const int from = first_seen(op.window, op.chunk, position) - tile * kPageTokens;
    const int to = position - tile * kPageTokens;
    float highest = no_score();
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = 8 * n + static_cast<int>(lane()) % 4 * 2 + i;
        float& score = scores[n][2 * half + i];
        score = key >= from && key <= to ? capped(score * op.scale, op.cap) * kLog2E : no_score();
        highest = fmaxf(highest, score);
      }
    }
    highest = fmaxf(highest, __shfl_xor_sync(kAll, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(kAll, highest, 2));
    highest = fmaxf(highest, highest_[half]);
    const float kept = highest == highest_[half] ? 1.0f : exp2f(highest_[half] - highest);
    const float base = highest == no_score() ? 0.0f : highest;
    highest_[half] = highest;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores[n][2 * half + i];
        score = exp2f(score - base);
        sum += score;
      }
    }
    sum_[half] = fmaf(sum_[half], kept, sum);
#pragma unroll
    for (int d = 0; d < kPieces; ++d) {
      out_[d][2 * half] *= kept;
      out_[d][2 * half + 1] *= kept;
    }
  }
  __device__ __forceinline__ void weigh(int tile, float (&scores)[8][4]) {
    weigh_row(tile, 0, scores);
    weigh_row(tile, 1, scores);
  }

  __device__ __forceinline__ void add_values(const float (&weights)[8][4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t a[4] = {narrow_pair<kBf16>(weights[2 * k][0], weights[2 * k][1]),
                             narrow_pair<kBf16>(weights[2 * k][2], weights[2 * k][3]),
                             narrow_pair<kBf16>(weights[2 * k + 1][0], weights[2 * k + 1][1]),
                             narrow_pair<kBf16>(weights[2 * k + 1][2], weights[2 * k + 1][3])};
#pragma unroll
      for (int d = 0; d < kPieces; d += 2) {
        uint32_t b[4];
        load_matrices_turned(a_address<kPieces>(values_, k * 16, d), b);
        multiply_add<kBf16>(out_[d], a, b[0], b[1]);
        multiply_add<kBf16>(out_[d + 1], a, b[2], b[3]);
      }
    }
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
      float* const out = row_of(in_.out, in_.out_width, first_row_ + row) + head_ * width;
#pragma unroll
      for (int d = 0; d < kPieces; ++d) {
        const int column = d * 8 + static_cast<int>(lane()) % 4 * 2;
        if (column >= width) continue;
        const float2 two = make_float2(out_[d][2 * half] / sum, out_[d][2 * half + 1] / sum);
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
  float out_[kPieces][4] = {};
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
