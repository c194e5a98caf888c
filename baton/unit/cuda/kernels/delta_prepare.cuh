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
#include "baton/unit/cuda/kernels/delta_inputs.cuh"
#include "baton/unit/cuda/kernels/delta_inverse.cuh"
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

// In shared memory of the first kernel, of which two blocks share a processor: what comes of x lies where tiles will
// be, or what is made of them.
struct DeltaPrepare {
  using Rows = float[kTapsBefore + 64][kChunkDim];
  unsigned char keys[2 * kWideHalf];  // pairs; later exp(G) k
  union {
    Rows keys_in;
    unsigned char queries[2 * kWideHalf];  // pairs; later values
  };
  union {
    Rows queries_in;
    struct {
      union {
        Square lower;                             // L; above its diagonal, blocks of products
        unsigned char solution[2 * kSquareHalf];  // T
      };
      Square inverse;  // P; later of I + L
    };
  };
  uint64_t come;                                      // barrier of the copies
  float gates[64], running[64], beta[64], grown[64];  // g, G, exp(G)
};
static_assert(sizeof(DeltaPrepare) <= kDeltaPrepareShared);

// A chunk of a head. kConv: x is what the convolution takes. Each block runs its code once, and waits longer for that
// than for its data: loops are not unrolled where that is not needed to keep values in registers.
template <bool kConv>
class DeltaPreparation {
 public:
  __device__ DeltaPreparation(const Instruction& in, const Run& run, const RowTile& tile, int head, unsigned char* to,
                              DeltaPrepare& room)
      : in_(in),
        room_(room),
        to_(to),
        inputs_(in, run, tile),
        head_(head),
        first_row_(run.first_row + tile.offset),
        rows_(tile.count) {
    const int key_head = key_head_of(in.op, head);
    query_channel_ = key_head * kChunkDim;
    key_channel_ = (in.op.kv_heads + key_head) * kChunkDim;
    value_channel_ = (2 * in.op.kv_heads + head) * kChunkDim;
    // Later rows are more to do: of the warps that share a quarter of a processor one has few where the other has many.
    const int quarter = static_cast<int>(warp()) % 4;
    warp_row_ = (warp() < 4 ? quarter : 3 - quarter) * 16;
    row_ = warp_row_ + static_cast<int>(lane()) / 4;
    pair_ = static_cast<int>(lane()) % 4 * 2;
  }

  __device__ void run() {
    const bool is = static_cast<int>(threadIdx.x) < rows_;
    const float y = is ? row_of(in_.y, in_.y_width, first_row_ + threadIdx.x)[head_] : 0.0f;
    const float z = is ? row_of(in_.z, in_.z_width, first_row_ + threadIdx.x)[head_] : 0.0f;
    ask();
    put_gates(is, y, z);
    wait_for_copies();
    sum_gates();
    normalise();
    multiply_grams();
    __syncthreads();
    scale_grams();
    scale_rows();
    __syncthreads();
    invert_lower(room_.lower, room_.inverse);
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < 64 * 32; i += static_cast<int>(kDeltaPrepareThreads)) {
      const int row = i / 32, column = i % 32 * 2;
      store_pair<8>(room_.solution, kSquareHalf, row, column, room_.inverse[row][column] * room_.beta[column],
                    room_.inverse[row][column + 1] * room_.beta[column + 1]);
    }
    __syncthreads();
    solve();
  }

 private:
  static constexpr int kBefore = kConv ? kTapsBefore : 0, kRowsIn = kBefore + 64;

  // Taps of channels that follow each other.
  template <int kCount>
  struct Taps {
    float4 of[kConv ? kCount : 1];
    __device__ Taps(const ChunkInputs<kConv>& inputs, int channel) {
      if constexpr (kConv) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) of[i] = inputs.taps(channel)[i];
      }
    }
  };

  // Queries and keys, of rows from the first that the chunk's first sees on; those behind its last are copies of that.
  __device__ void ask() {
    const auto from = [&](int row) { return inputs_.row(min(row - kBefore, rows_ - 1)); };
    const int thread = static_cast<int>(threadIdx.x);
    if (kCopiesInBulk) {
      const uint32_t barrier = shared_address(&room_.come);
      if (thread == 0) {
        make_barrier(barrier, 32);
        barriers_made();
        arrive_with_bulk(barrier, 2 * kRowsIn * kChunkDim * 4);
      }
      __syncthreads();
      // A warp asks by one lane at a time: so half of the warps by some of their lanes for each.
      constexpr int kEach = (kRowsIn + 3) / 4;
      const int of = static_cast<int>(lane()), row = static_cast<int>(warp()) % 4 * kEach + of;
      if (of >= kEach || row >= kRowsIn) return;
      const bool queries = warp() < 4;
      copy_in_bulk(shared_address(queries ? room_.queries_in[row] : room_.keys_in[row]),
                   from(row) + (queries ? query_channel_ : key_channel_), kChunkDim * 4, barrier);
      return;
    }
    const int each = static_cast<int>(kDeltaPrepareThreads);
    for (int i = thread; !kCopiesInBulk && i < kRowsIn * 32; i += each) {
      copy_ahead(shared_address(room_.queries_in) + i * 16, from(i / 32) + query_channel_ + i % 32 * 4);
      copy_ahead(shared_address(room_.keys_in) + i * 16, from(i / 32) + key_channel_ + i % 32 * 4);
    }
    copies_end_group();
  }
  // And for what all threads have done before.
  __device__ void wait_for_copies() {
    if (!kCopiesInBulk) copies_wait<0>();
    __syncthreads();
    if (kCopiesInBulk) wait_for(shared_address(&room_.come), 0);
  }
  // Four values of a row, of the four that begin there.
  __device__ float4 convolved_four(const float4* rows, const Taps<4>& taps) const {
    if constexpr (!kConv) return rows[0];
    float4 v;
    v.x = convolved(taps.of[0], rows[0].x, rows[1].x, rows[2].x, rows[3].x);
    v.y = convolved(taps.of[1], rows[0].y, rows[1].y, rows[2].y, rows[3].y);
    v.z = convolved(taps.of[2], rows[0].z, rows[1].z, rows[2].z, rows[3].z);
    v.w = convolved(taps.of[3], rows[0].w, rows[1].w, rows[2].w, rows[3].w);
    return v;
  }
  // k / |k|, then q / |q| / sqrt(key_dim), whose place is that of the keys' inputs. Each warp has 8 rows, four at a
  // time.
  __device__ void normalise() {
    constexpr int kEach = 4;
    const int column = static_cast<int>(lane()) * 4, first = static_cast<int>(warp()) * 8;
#pragma unroll 1
    for (int queries = 0; queries < 2; ++queries) {
      const Taps<4> taps(inputs_, (queries != 0 ? query_channel_ : key_channel_) + column);
      const auto& from = queries != 0 ? room_.queries_in : room_.keys_in;
      unsigned char* const tile = queries != 0 ? room_.queries : room_.keys;
      const float scale = queries != 0 ? rsqrtf(static_cast<float>(kChunkDim)) : 1.0f;
#pragma unroll 1
      for (int row = first; row < first + 8; row += kEach) {
        float4 rows[kEach + kBefore];
        float sums[kEach];
#pragma unroll
        for (int i = 0; i < kEach + kBefore; ++i) rows[i] = *reinterpret_cast<const float4*>(&from[row + i][column]);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          const float4 v = rows[i] = row + i < rows_ ? convolved_four(rows + i, taps) : make_float4(0, 0, 0, 0);
          sums[i] = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, v.w * v.w)));
        }
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes >>= 1) {
#pragma unroll
          for (int i = 0; i < kEach; ++i) sums[i] += __shfl_xor_sync(kAll, sums[i], lanes);
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          const float factor = scale * rsqrtf(sums[i] + in_.op.eps);
          const Split low = split_pair(rows[i].x * factor, rows[i].y * factor);
          const Split high = split_pair(rows[i].z * factor, rows[i].w * factor);
          unsigned char* const to = tile + piece_at<16>(row + i, column / 8) + column % 8 * 2;
          *reinterpret_cast<uint2*>(to) = make_uint2(low.high, high.high);
          *reinterpret_cast<uint2*>(to + kWideHalf) = make_uint2(low.low, high.low);
        }
      }
      __syncthreads();
    }
  }

  // Of the thread's row, if it is one.
  __device__ void put_gates(bool is, float y, float z) {
    if (threadIdx.x >= 64) return;
    room_.gates[threadIdx.x] = is ? decay_of(in_, head_, z) : 0.0f;
    room_.beta[threadIdx.x] = is ? sigmoid(y) : 0.0f;
  }
  // By the first warp, two rows a lane.
  __device__ void sum_gates() {
    if (warp() != 0) return;
    const int of = static_cast<int>(lane()), row = 2 * of;
    const float own = room_.gates[row];
    float sum = own + room_.gates[row + 1];
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const float below = __shfl_up_sync(kAll, sum, lanes);
      sum += of >= lanes ? below : 0.0f;
    }
    const float below = __shfl_up_sync(kAll, sum, 1), first = of > 0 ? below + own : own;
    room_.running[row] = first, room_.running[row + 1] = sum;
    room_.grown[row] = expf(first), room_.grown[row + 1] = expf(sum);
    if (of == 31) *reinterpret_cast<float*>(to_ + kChunkDecay) = expf(sum);
  }

  // Warps 0 to 3: k_i . k_j, 4 to 7: q_i . k_j; 16 rows each, as far as their diagonal.
  __device__ void multiply_grams() {
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
    float* const to = &(of_keys ? room_.lower : room_.inverse)[row_][pair_];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      *reinterpret_cast<float2*>(to + 8 * n) = make_float2(sums[n][0], sums[n][1]);
      *reinterpret_cast<float2*>(to + 8 * n + 8 * kSquarePitch) = make_float2(sums[n][2], sums[n][3]);
    }
  }
  // L stays, P goes to scratch.
  __device__ void scale_grams() {
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < 64 * 32; i += static_cast<int>(kDeltaPrepareThreads)) {
      const int row = i / 32, column = i % 32 * 2;
      const float running = room_.running[row], by = room_.beta[row];
      const float first = decay(running - room_.running[column]);
      const float second = decay(running - room_.running[column + 1]);
      auto* const lower = reinterpret_cast<float2*>(&room_.lower[row][column]);
      const float2 l = *lower, p = *reinterpret_cast<const float2*>(&room_.inverse[row][column]);
      *lower = make_float2(column < row ? l.x * first * by : 0.0f, column + 1 < row ? l.y * second * by : 0.0f);
      store_pair<8>(to_ + kChunkP, kSquareHalf, row, column, column <= row ? p.x * first : 0.0f,
                    column + 1 <= row ? p.y * second : 0.0f);
    }
  }
  __device__ static float decay(float gates) { return __expf(fminf(gates, 0.0f)); }

  // Queries and keys with their decays go to scratch; keys stay as exp(G) k, values come in place of queries. A thread
  // has a piece of four rows.
  __device__ static int piece() { return static_cast<int>(threadIdx.x) % 16; }
  __device__ void scale_rows() {
    constexpr int kEach = 64 * 16 / static_cast<int>(kDeltaPrepareThreads);
    const float last = room_.running[63];
    const int first = static_cast<int>(threadIdx.x) / 16 * kEach, channel = value_channel_ + piece() * 8;
    const Taps<4> low_taps(inputs_, channel), high_taps(inputs_, channel + 4);
    float4 low[kBefore + 1], high[kBefore + 1], next[2];  // inputs of a row's values, and of the next row's
#pragma unroll
    for (int i = 0; i < kBefore; ++i) load_inputs(first + i - kBefore, channel, low[i], high[i]);
    load_inputs(first, channel, next[0], next[1]);
#pragma unroll 1
    for (int row = first; row < first + kEach; ++row) {
      low[kBefore] = next[0], high[kBefore] = next[1];
      if (row + 1 < first + kEach) load_inputs(row + 1, channel, next[0], next[1]);
      const uint32_t at = piece_at<16>(row, piece());
      const float grown = room_.grown[row], left = decay(last - room_.running[row]);
      const Eight queries = eight_at<kWideHalf>(room_.queries, at), keys = eight_at<kWideHalf>(room_.keys, at);
      put_eight<kWideHalf>(to_ + kChunkQ, at, queries, grown);
      put_eight<kWideHalf>(to_ + kChunkK, at, keys, left);
      put_eight<kWideHalf>(room_.keys, at, keys, grown);
      float4 a = make_float4(0, 0, 0, 0), b = a;
      if (row < rows_) a = convolved_four(low, low_taps), b = convolved_four(high, high_taps);
      put_eight<kWideHalf>(room_.queries, at, {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}}, 1.0f);
#pragma unroll
      for (int i = 0; i < kBefore; ++i) low[i] = low[i + 1], high[i] = high[i + 1];
    }
  }
  // Of a row, or of the last where it is behind that.
  __device__ void load_inputs(int row, int channel, float4& low, float4& high) const {
    const auto* const from = reinterpret_cast<const float4*>(inputs_.row(min(row, rows_ - 1)) + channel);
    low = from[0], high = from[1];
  }
  // Warps 0 to 3: W = T exp(G) K, 4 to 7: U = T V; 16 rows each, 32 columns at a time.
  __device__ void solve() {
    const bool of_keys = warp() < 4;
    const uint32_t solution = shared_address(room_.solution);
    const uint32_t b_tile = shared_address(of_keys ? room_.keys : room_.queries);
#pragma unroll 1
    for (int n = 0; n < 8; n += 2) {
      float sums[4][4] = {};
#pragma unroll 1
      for (int k = 0; k * 16 <= warp_row_; ++k) {
        uint32_t a_high[4], a_low[4];
        load_matrices(a_address<8>(solution, warp_row_, 2 * k), a_high);
        load_matrices(a_address<8>(solution + kSquareHalf, warp_row_, 2 * k), a_low);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          uint32_t b_high[4], b_low[4];
          load_matrices_turned(a_address<16>(b_tile, k * 16, 2 * (n + m)), b_high);
          load_matrices_turned(a_address<16>(b_tile + kWideHalf, k * 16, 2 * (n + m)), b_low);
          multiply_pairs(sums[2 * m], a_high, a_low, b_high, b_low);
          multiply_pairs(sums[2 * m + 1], a_high, a_low, b_high + 2, b_low + 2);
        }
      }
      of_keys ? write_w(n, sums) : write_u(n, sums);
    }
  }
  __device__ void write_u(int n, const float (&sums)[4][4]) const {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_ + 8 * half, column = 16 * n + 8 * m + pair_;
        *reinterpret_cast<float2*>(to_ + kChunkU + (row * kChunkDim + column) * 4) =
            make_float2(sums[m][2 * half], sums[m][2 * half + 1]);
      }
    }
  }
  // Four lanes have a piece between them: each gets a whole one of the four.
  __device__ void write_w(int n, const float (&sums)[4][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t high[4], low[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const Split split = split_pair(sums[m][2 * half], sums[m][2 * half + 1]);
        high[m] = split.high, low[m] = split.low;
      }
      unsigned char* const to = to_ + kChunkW + piece_at<16>(row_ + 8 * half, 2 * n + static_cast<int>(lane()) % 4);
      *reinterpret_cast<uint4*>(to) = turn_fours(high);
      *reinterpret_cast<uint4*>(to + kWideHalf) = turn_fours(low);
    }
  }
  const Instruction& in_;
  DeltaPrepare& room_;
  unsigned char* const to_;
  const ChunkInputs<kConv> inputs_;
  const int head_, first_row_, rows_;
  int query_channel_, key_channel_, value_channel_, warp_row_, row_, pair_;
};

// Blocks: chunks, and of each the heads.
template <bool kConv>
__device__ __forceinline__ void delta_prepare_block(const Work& work, unsigned char* shared) {
  const Instruction& in = work.instruction;
  const Pass& pass = *at<const Pass>(work.pass);
  const int heads = in.op.heads, block = static_cast<int>(blockIdx.x);
  const RowTile tile = delta_chunk(pass, block / heads);
  if (tile.run < 0) return;
  unsigned char* const to = at<unsigned char>(in.scratch) + static_cast<uint64_t>(block) * kDeltaChunkBytes;
  DeltaPreparation<kConv> prepare(in, pass.run[tile.run], tile, block % heads, to,
                                  *reinterpret_cast<DeltaPrepare*>(shared));
  prepare.run();
}

}  // namespace baton::cuda
