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

// f32 of a row of a matrix [64][64]: fours of them lie at multiples of 16 bytes.
inline constexpr int kSquarePitch = 68;

// In shared memory of the first kernel.
struct DeltaPrepare {
  unsigned char keys[2 * kWideHalf];     // pairs; later exp(G) k
  unsigned char queries[2 * kWideHalf];  // later values
  union {
    float lower[64][kSquarePitch];            // L; above its diagonal, blocks of products
    unsigned char solution[2 * kSquareHalf];  // T
  };
  float inverse[64][kSquarePitch];                    // of I + L
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
    // Later rows are more to do: of the warps that share a quarter of a processor one has few where the other has many.
    const int quarter = static_cast<int>(warp()) % 4;
    warp_row_ = (warp() < 4 ? quarter : 3 - quarter) * 16;
    row_ = warp_row_ + static_cast<int>(lane()) / 4;
    pair_ = static_cast<int>(lane()) % 4 * 2;
  }

  __device__ void run() {
    load_gates();
    normalise();
    Values values;
    load_values(values);
    __syncthreads();
    sum_gates();
    grams();
    __syncthreads();
    scale_rows(values);
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

  // q / |q| / sqrt(key_dim) and k / |k|; each warp has 8 rows, which it reads at once.
  __device__ void normalise() {
    constexpr int kEach = 8;
    const float scale = rsqrtf(static_cast<float>(kChunkDim));
    const int column = static_cast<int>(lane()) * 4, first = static_cast<int>(warp()) * kEach;
    float4 queries[kEach], keys[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      queries[i] = keys[i] = make_float4(0, 0, 0, 0);
      if (first + i >= rows_) continue;
      const float* const x = inputs(first + i) + key_head_ * kChunkDim + column;
      queries[i] = *reinterpret_cast<const float4*>(x);
      keys[i] = *reinterpret_cast<const float4*>(x + in_.op.kv_heads * kChunkDim);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      put_normed(room_.queries, first + i, column, queries[i], scale);
      put_normed(room_.keys, first + i, column, keys[i], 1.0f);
    }
  }
  __device__ void put_normed(unsigned char* tile, int row, int column, const float4& v, float scale) const {
    const float sum = warp_sum(fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, v.w * v.w))));
    const float factor = scale * rsqrtf(sum + in_.op.eps);
    store_pair<16>(tile, kWideHalf, row, column, v.x * factor, v.y * factor);
    store_pair<16>(tile, kWideHalf, row, column + 2, v.z * factor, v.w * factor);
  }

  __device__ void load_gates() {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= 64) return;
    room_.gates[row] = row < rows_ ? delta_gate(in_, first_row_ + row, head_) : 0.0f;
    room_.beta[row] = row < rows_ ? delta_beta(in_, first_row_ + row, head_) : 0.0f;
  }
  __device__ void sum_gates() {
    const int row = static_cast<int>(threadIdx.x);
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
    __syncthreads();  // running sums are there
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + 8 * half, seen = of_keys ? row : row + 1;
      const float running = room_.running[row], by = of_keys ? room_.beta[row] : 1.0f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int column = 8 * n + pair_;
        const float2 before = *reinterpret_cast<const float2*>(room_.running + column);
        const float first = column < seen ? sums[n][2 * half] * decay(running - before.x) * by : 0.0f;
        const float second = column + 1 < seen ? sums[n][2 * half + 1] * decay(running - before.y) * by : 0.0f;
        if (of_keys) {
          *reinterpret_cast<float2*>(&room_.lower[row][column]) = make_float2(first, second);
        } else {
          store_pair<8>(to_ + kChunkP, kSquareHalf, row, column, first, second);
        }
      }
    }
  }
  __device__ static float decay(float gates) { return __expf(fminf(gates, 0.0f)); }

  // A thread's eights of the chunk's values, asked for long before they are used.
  struct Values {
    static constexpr int kEights = 64 * 16 / static_cast<int>(kDeltaPrepareThreads);
    float4 low[kEights], high[kEights];
  };
  __device__ static int eight_of(int k) {
    return static_cast<int>(threadIdx.x) + k * static_cast<int>(kDeltaPrepareThreads);
  }
  __device__ void load_values(Values& values) const {
    const int at = 2 * in_.op.kv_heads * kChunkDim + head_ * kChunkDim;
#pragma unroll
    for (int k = 0; k < Values::kEights; ++k) {
      const int row = eight_of(k) / 16, column = eight_of(k) % 16 * 8;
      values.low[k] = values.high[k] = make_float4(0, 0, 0, 0);
      if (row >= rows_) continue;
      const auto* const from = reinterpret_cast<const float4*>(inputs(row) + at + column);
      values.low[k] = from[0], values.high[k] = from[1];
    }
  }

  // Queries and keys with their decays go to scratch; keys stay as exp(G) k, values come in place of queries.
  __device__ void scale_rows(const Values& values) {
    const float last = room_.running[63];
#pragma unroll
    for (int k = 0; k < Values::kEights; ++k) {
      const int row = eight_of(k) / 16;
      const uint32_t at = piece_at<16>(row, eight_of(k) % 16);
      const float grown = room_.grown[row], left = decay(last - room_.running[row]);
      const Eight queries = eight_at(room_.queries, at), keys = eight_at(room_.keys, at);
      const float4 low = values.low[k], high = values.high[k];
      put(to_ + kChunkQ, at, queries, grown);
      put(to_ + kChunkK, at, keys, left);
      put(room_.keys, at, keys, grown);
      put(room_.queries, at, {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}}, 1.0f);
    }
  }
  // A piece of a tile of pairs.
  struct Eight {
    float v[8];
  };
  __device__ static Eight eight_at(const unsigned char* tile, uint32_t at) {
    const uint4 high = *reinterpret_cast<const uint4*>(tile + at);
    const uint4 low = *reinterpret_cast<const uint4*>(tile + kWideHalf + at);
    Eight of;
    join_pair({high.x, low.x}, of.v[0], of.v[1]);
    join_pair({high.y, low.y}, of.v[2], of.v[3]);
    join_pair({high.z, low.z}, of.v[4], of.v[5]);
    join_pair({high.w, low.w}, of.v[6], of.v[7]);
    return of;
  }
  __device__ static void put(unsigned char* tile, uint32_t at, const Eight& of, float by) {
    Split split[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) split[i] = split_pair(of.v[2 * i] * by, of.v[2 * i + 1] * by);
    *reinterpret_cast<uint4*>(tile + at) = make_uint4(split[0].high, split[1].high, split[2].high, split[3].high);
    *reinterpret_cast<uint4*>(tile + kWideHalf + at) =
        make_uint4(split[0].low, split[1].low, split[2].low, split[3].low);
  }

  // By blocks of 16: those of the diagonal column by column, then those below, a diagonal at a time. 64 threads have a
  // block, each four of a row.
  __device__ void invert() {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < 64) invert_column(thread / 16 * 16, thread % 16);
    __syncthreads();
    const int part = thread / 64, r = thread % 64 / 4, c = thread % 4 * 4;
#pragma unroll 1
    for (int d = 1; d < 4; ++d) {
      const int below = (d + part) * 16, left = part * 16;  // of the block
      const bool is = below < 64;
      if (is) {
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
        for (int k = left; k < below; ++k) add_four(sum, room_.lower[below + r][k], &room_.inverse[k][left + c]);
        *reinterpret_cast<float4*>(&room_.lower[left + r][below + c]) = sum;
      }
      __syncthreads();
      if (is) {
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < 16; ++k)
          add_four(sum, room_.inverse[below + r][below + k], &room_.lower[left + k][below + c]);
        *reinterpret_cast<float4*>(&room_.inverse[below + r][left + c]) = make_float4(-sum.x, -sum.y, -sum.z, -sum.w);
        *reinterpret_cast<float4*>(&room_.inverse[left + r][below + c]) = make_float4(0, 0, 0, 0);
      }
      __syncthreads();
    }
  }
  __device__ static void add_four(float4& sum, float by, const float* from) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    sum.x = fmaf(by, four.x, sum.x), sum.y = fmaf(by, four.y, sum.y);
    sum.z = fmaf(by, four.z, sum.z), sum.w = fmaf(by, four.w, sum.w);
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
