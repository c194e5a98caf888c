// The gated delta rule of prompts, 64 tokens at a time in the WY form, on tensor cores (Yang, Kautz, Hatamizadeh,
// "Gated Delta Networks", 2024). With G the running sum of the gates inside a chunk, D_ij = exp(G_i - G_j):
//   L_ij = beta_i (k_i . k_j) D_ij for j < i;   T = (I + L)^-1 diag(beta);   U = T V;   W = T exp(G) K
//   N = U - W S;   out = exp(G) Q S + P N with P_ij = (q_i . k_j) D_ij for j <= i
//   S <- exp(G_64) S + sum_i exp(G_64 - G_i) k_i N_i^T
// Factors are pairs of bf16, the product of two of them three products, sums f32: right to 16 bits or so. Rows that a
// chunk lacks are zero, and so is their beta.
//
// Between the two kernels lie, of each chunk and head, tiles of pairs as shared memory has them (tensor.cuh), the high
// values and then the low ones, [64][128] each: W, exp(G) Q, exp(G_64 - G) K; then U, f32 [64][128]; then P, a pair
// [64][64]; then exp(G_64).
#pragma once

#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/delta.cuh"
#include "baton/unit/cuda/kernels/tensor.cuh"

namespace baton::cuda {

inline constexpr int kChunkDim = 128;                      // of keys and of values
inline constexpr uint32_t kWideHalf = 64 * kChunkDim * 2;  // bytes: the high values of a tile [64][128]
inline constexpr uint32_t kSquareHalf = 64 * 64 * 2;
inline constexpr uint32_t kChunkW = 0, kChunkQ = 2 * kWideHalf, kChunkK = 4 * kWideHalf, kChunkU = 6 * kWideHalf,
                          kChunkP = 8 * kWideHalf, kChunkDecay = 8 * kWideHalf + 2 * kSquareHalf;  // bytes
static_assert(kChunkDecay + 128 == kDeltaChunkBytes);

// sum += a b of pairs.
__device__ __forceinline__ void multiply_pairs(float (&sum)[4], const uint32_t (&a_high)[4], const uint32_t (&a_low)[4],
                                               const uint32_t* b_high, const uint32_t* b_low) {
  multiply_add<true>(sum, a_low, b_high[0], b_high[1]);
  multiply_add<true>(sum, a_high, b_low[0], b_low[1]);
  multiply_add<true>(sum, a_high, b_high[0], b_high[1]);
}

// Two neighbours of a row, to the tile at `to` and the one of low values `half` bytes behind.
template <int kPieces>
__device__ __forceinline__ void store_pair(unsigned char* to, uint32_t half, int row, int column, float first,
                                           float second) {
  const Split split = split_pair(first, second);
  unsigned char* const word = to + piece_at<kPieces>(row, column / 8) + column % 8 * 2;
  *reinterpret_cast<uint32_t*>(word) = split.high;
  *reinterpret_cast<uint32_t*>(word + half) = split.low;
}

// In shared memory of the first kernel.
struct DeltaPrepare {
  unsigned char keys[2 * kWideHalf];     // pairs; later exp(G) k
  unsigned char queries[2 * kWideHalf];  // later values
  union {
    float lower[64][65];                      // L; above its diagonal, blocks of products
    unsigned char solution[2 * kSquareHalf];  // T
  };
  float inverse[64][65];                              // of I + L
  float gates[64], running[64], beta[64], grown[64];  // g, G, exp(G)
};
static_assert(sizeof(DeltaPrepare) <= kDeltaPrepareShared);

// A chunk of a head.
class DeltaPreparation {
 public:
  __device__ DeltaPreparation(const Instruction& in, const Run& run, const RowTile& tile, int head, unsigned char* to,
                              DeltaPrepare& room)
      : in_(in), room_(room), to_(to), head_(head), first_row_(run.first_row + tile.offset), rows_(tile.count) {
    key_head_ = key_head_of(in.op, head);
    warp_row_ = static_cast<int>(warp()) % 4 * 16;
    row_ = warp_row_ + static_cast<int>(lane()) / 4;
    pair_ = static_cast<int>(lane()) % 4 * 2;
  }

  __device__ void run() {
    normalise();
    sum_gates();
    __syncthreads();
    grams();
    __syncthreads();
    scale_rows();
    invert();
    for (int i = static_cast<int>(threadIdx.x); i < 64 * 32; i += static_cast<int>(kDeltaPrepareThreads)) {
      const int row = i / 32, column = i % 32 * 2;
      store_pair<8>(room_.solution, kSquareHalf, row, column, room_.inverse[row][column] * room_.beta[column],
                    room_.inverse[row][column + 1] * room_.beta[column + 1]);
    }
    __syncthreads();
    solve();
  }

 private:
  __device__ const float* inputs(int row) const { return row_of(in_.x, in_.x_width, first_row_ + row); }

  // q / |q| / sqrt(key_dim) and k / |k|; each warp has 8 rows.
  __device__ void normalise() {
    const float scale = 1.0f / sqrtf(static_cast<float>(kChunkDim));
    const int column = static_cast<int>(lane()) * 4;
    for (int row = static_cast<int>(warp()) * 8; row < static_cast<int>(warp()) * 8 + 8; ++row) {
      const float* const x = inputs(row) + key_head_ * kChunkDim + column;
      const float4 none = make_float4(0, 0, 0, 0);
      const float4 q = row < rows_ ? *reinterpret_cast<const float4*>(x) : none;
      const float4 k = row < rows_ ? *reinterpret_cast<const float4*>(x + in_.op.kv_heads * kChunkDim) : none;
      const float q_sum = warp_sum(fmaf(q.x, q.x, fmaf(q.y, q.y, fmaf(q.z, q.z, q.w * q.w))));
      const float k_sum = warp_sum(fmaf(k.x, k.x, fmaf(k.y, k.y, fmaf(k.z, k.z, k.w * k.w))));
      const float q_factor = scale / sqrtf(q_sum + in_.op.eps), k_factor = 1.0f / sqrtf(k_sum + in_.op.eps);
      store_pair<16>(room_.queries, kWideHalf, row, column, q.x * q_factor, q.y * q_factor);
      store_pair<16>(room_.queries, kWideHalf, row, column + 2, q.z * q_factor, q.w * q_factor);
      store_pair<16>(room_.keys, kWideHalf, row, column, k.x * k_factor, k.y * k_factor);
      store_pair<16>(room_.keys, kWideHalf, row, column + 2, k.z * k_factor, k.w * k_factor);
    }
  }

  __device__ void sum_gates() {
    const int row = static_cast<int>(threadIdx.x);
    if (row < 64) {
      room_.gates[row] = row < rows_ ? delta_gate(in_, first_row_ + row, head_) : 0.0f;
      room_.beta[row] = row < rows_ ? delta_beta(in_, first_row_ + row, head_) : 0.0f;
    }
    __syncthreads();
    if (row >= 64) return;
    float sum = 0;
    for (int i = 0; i <= row; ++i) sum += room_.gates[i];
    room_.running[row] = sum;
    room_.grown[row] = expf(sum);
    if (row == 63) *reinterpret_cast<float*>(to_ + kChunkDecay) = expf(sum);
  }

  // Warps 0 to 3: L, 4 to 7: P; 16 rows each.
  __device__ void grams() {
    const bool of_keys = warp() < 4;
    const uint32_t keys = shared_address(room_.keys), a_tile = of_keys ? keys : shared_address(room_.queries);
    float sums[8][4] = {};
#pragma unroll 2
    for (int k = 0; k < kChunkDim / 16; ++k) {
      uint32_t a_high[4], a_low[4];
      load_matrices(a_address<16>(a_tile, warp_row_, 2 * k), a_high);
      load_matrices(a_address<16>(a_tile + kWideHalf, warp_row_, 2 * k), a_low);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (n * 16 > warp_row_) continue;
        uint32_t b_high[4], b_low[4];
        load_matrices(across_address<16>(keys, n * 16, 2 * k), b_high);
        load_matrices(across_address<16>(keys + kWideHalf, n * 16, 2 * k), b_low);
        multiply_pairs(sums[2 * n], a_high, a_low, b_high, b_low);
        multiply_pairs(sums[2 * n + 1], a_high, a_low, b_high + 2, b_low + 2);
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_ + 8 * half, column = 8 * n + pair_;
        const float first = masked(sums[n][2 * half], row, column, of_keys);
        const float second = masked(sums[n][2 * half + 1], row, column + 1, of_keys);
        if (of_keys) {
          room_.lower[row][column] = first;
          room_.lower[row][column + 1] = second;
        } else {
          store_pair<8>(to_ + kChunkP, kSquareHalf, row, column, first, second);
        }
      }
    }
  }
  __device__ float masked(float product, int row, int column, bool of_keys) const {
    if (column > row || (of_keys && column == row)) return 0.0f;
    const float decayed = product * expf(fminf(room_.running[row] - room_.running[column], 0.0f));
    return of_keys ? decayed * room_.beta[row] : decayed;
  }

  // Queries and keys with their decays go to scratch; keys stay as exp(G) k, values come in place of queries.
  __device__ void scale_rows() {
    const int values = 2 * in_.op.kv_heads * kChunkDim + head_ * kChunkDim;
    const float last = room_.running[63];
    for (int i = static_cast<int>(threadIdx.x); i < 64 * 16; i += static_cast<int>(kDeltaPrepareThreads)) {
      const int row = i / 16, column = i % 16 * 8;
      const uint32_t at = piece_at<16>(row, i % 16);
      const float grown = room_.grown[row], left = expf(fminf(last - room_.running[row], 0.0f));
      float value[8] = {};
      if (row < rows_) {
        const auto* const from = reinterpret_cast<const float4*>(inputs(row) + values + column);
        const float4 low = from[0], high = from[1];
        value[0] = low.x, value[1] = low.y, value[2] = low.z, value[3] = low.w;
        value[4] = high.x, value[5] = high.y, value[6] = high.z, value[7] = high.w;
      }
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        float first, second;
        join_pair(split_at(room_.queries, at, word), first, second);
        put(to_ + kChunkQ, at, word, split_pair(first * grown, second * grown));
        join_pair(split_at(room_.keys, at, word), first, second);
        put(to_ + kChunkK, at, word, split_pair(first * left, second * left));
        put(room_.keys, at, word, split_pair(first * grown, second * grown));
        put(room_.queries, at, word, split_pair(value[2 * word], value[2 * word + 1]));
      }
    }
  }
  __device__ static Split split_at(const unsigned char* tile, uint32_t at, int word) {
    Split split;
    split.high = *reinterpret_cast<const uint32_t*>(tile + at + 4 * word);
    split.low = *reinterpret_cast<const uint32_t*>(tile + kWideHalf + at + 4 * word);
    return split;
  }
  __device__ static void put(unsigned char* tile, uint32_t at, int word, const Split& split) {
    *reinterpret_cast<uint32_t*>(tile + at + 4 * word) = split.high;
    *reinterpret_cast<uint32_t*>(tile + kWideHalf + at + 4 * word) = split.low;
  }

  // By blocks of 16: those of the diagonal column by column, then those below, a diagonal at a time.
  __device__ void invert() {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < 64) invert_column(thread / 16 * 16, thread % 16);
    __syncthreads();
    const int r = thread / 16, c = thread % 16;
    for (int d = 1; d < 4; ++d) {
      for (int b = d; b < 4; ++b) {
        float sum = 0;
        for (int k = (b - d) * 16; k < b * 16; ++k)
          sum = fmaf(room_.lower[b * 16 + r][k], room_.inverse[k][(b - d) * 16 + c], sum);
        room_.lower[(b - d) * 16 + r][b * 16 + c] = sum;
      }
      __syncthreads();
      for (int b = d; b < 4; ++b) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < 16; ++k)
          sum = fmaf(room_.inverse[b * 16 + r][b * 16 + k], room_.lower[(b - d) * 16 + k][b * 16 + c], sum);
        room_.inverse[b * 16 + r][(b - d) * 16 + c] = -sum;
        room_.inverse[(b - d) * 16 + r][b * 16 + c] = 0;
      }
      __syncthreads();
    }
  }
  __device__ void invert_column(int first, int column) {
    float x[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      float sum = r == column ? 1.0f : 0.0f;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        if (j < r) sum = fmaf(-room_.lower[first + r][first + j], x[j], sum);
      }
      x[r] = sum;
      room_.inverse[first + r][first + column] = sum;
    }
  }

  // Warps 0 to 3: W = T exp(G) K, 4 to 7: U = T V; 16 rows each.
  __device__ void solve() {
    const bool of_keys = warp() < 4;
    const uint32_t solution = shared_address(room_.solution);
    const uint32_t b_tile = shared_address(of_keys ? room_.keys : room_.queries);
    float sums[16][4] = {};
#pragma unroll 1
    for (int k = 0; k * 16 <= warp_row_; ++k) {
      uint32_t a_high[4], a_low[4];
      load_matrices(a_address<8>(solution, warp_row_, 2 * k), a_high);
      load_matrices(a_address<8>(solution + kSquareHalf, warp_row_, 2 * k), a_low);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        uint32_t b_high[4], b_low[4];
        load_matrices_turned(a_address<16>(b_tile, k * 16, 2 * n), b_high);
        load_matrices_turned(a_address<16>(b_tile + kWideHalf, k * 16, 2 * n), b_low);
        multiply_pairs(sums[2 * n], a_high, a_low, b_high, b_low);
        multiply_pairs(sums[2 * n + 1], a_high, a_low, b_high + 2, b_low + 2);
      }
    }
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_ + 8 * half, column = 8 * n + pair_;
        const float first = sums[n][2 * half], second = sums[n][2 * half + 1];
        if (of_keys) {
          store_pair<16>(to_ + kChunkW, kWideHalf, row, column, first, second);
        } else {
          *reinterpret_cast<float2*>(to_ + kChunkU + (row * kChunkDim + column) * 4) = make_float2(first, second);
        }
      }
    }
  }

  const Instruction& in_;
  DeltaPrepare& room_;
  unsigned char* const to_;
  const int head_, first_row_, rows_;
  int key_head_, warp_row_, row_, pair_;
};

// Blocks: chunks, and of each the heads.
__device__ __forceinline__ void delta_prepare_block(const Work& work, unsigned char* shared) {
  const Instruction& in = work.instruction;
  const Pass& pass = *at<const Pass>(work.pass);
  const int heads = in.op.heads, block = static_cast<int>(blockIdx.x);
  const RowTile tile = delta_chunk(pass, block / heads);
  if (tile.run < 0) return;
  unsigned char* const to = at<unsigned char>(in.scratch) + static_cast<uint64_t>(block) * kDeltaChunkBytes;
  DeltaPreparation prepare(in, pass.run[tile.run], tile, block % heads, to, *reinterpret_cast<DeltaPrepare*>(shared));
  prepare.run();
}

}  // namespace baton::cuda
