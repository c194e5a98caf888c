// The second kernel of delta_prepare.cuh: chunk after chunk.
#pragma once

#include "baton/unit/cuda/kernels/delta_prepare.cuh"

namespace baton::cuda {

// In shared memory of the second kernel.
template <int kColumns>
struct DeltaChunks {
  unsigned char w[2 * kWideHalf], queries[2 * kWideHalf];  // brought together
  unsigned char keys[2 * kWideHalf], mix[2 * kSquareHalf];
  unsigned char state[2 * kChunkDim * kColumns * 2];  // pairs [128][kColumns]
  unsigned char change[2 * 64 * kColumns * 2];        // N, pairs [64][kColumns]
  uint64_t first, second;                             // barriers of the copies of w and queries, of keys and mix
};

// Chunk after chunk of a run: kColumns columns of a head's state. A warp has 16 of its rows; of W S it has 16 rows, or
// of Q S.
template <int kColumns>
class DeltaColumns {
  static_assert(sizeof(DeltaChunks<kColumns>) <= kDeltaChunksShared);

 public:
  __device__ DeltaColumns(const Instruction& in, const Run& run, int head, int column, int first_chunk,
                          DeltaChunks<kColumns>& room)
      : in_(in), run_(run), room_(room), head_(head), column_(column), first_chunk_(first_chunk) {
    chunks_ = delta_chunks(run);
    of_queries_ = warp() >= 4;
    warp_row_ = static_cast<int>(warp()) % 4 * 16;
    row_ = static_cast<int>(lane()) / 4;
    pair_ = static_cast<int>(lane()) % 4 * 2;
  }

  __device__ void run() {
    load_state();
    if (kCopiesInBulk && threadIdx.x == 0) {
      make_barrier(shared_address(&room_.first), 32);
      make_barrier(shared_address(&room_.second), 32);
      barriers_made();
      read_by_copies();
    }
    bring_first(0);
    bring_second(0);
    if (kCopiesInBulk) __syncthreads();
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      const unsigned char* const from = chunk_at(chunk);
      const float decay = *reinterpret_cast<const float*>(from + kChunkDecay);
      float sums[kEights][4] = {}, u[kEights][4];
      if (!of_queries_) load_u(from, u);
      publish_state();
      if (!kCopiesInBulk) copies_wait<1>();
      __syncthreads();
      if (kCopiesInBulk) wait_for(shared_address(&room_.first), chunk & 1);
      multiply_state(sums);
      if (!of_queries_) publish_change(u, sums);
      __syncthreads();
      bring_first(chunk + 1);
      if (kCopiesInBulk) {
        wait_for(shared_address(&room_.second), chunk & 1);
      } else {
        copies_wait<1>();
        __syncthreads();
      }
      if (of_queries_) write_out(chunk, sums);
      change_state(decay);
      __syncthreads();
      bring_second(chunk + 1);
    }
    if (!kCopiesInBulk) copies_wait<0>();
    store_state();
    // Of a kConvDelta nobody reads the ring any more.
    if (in_.what == Do::kConvDelta) {
      constexpr int kParts = kChunkDim / kColumns;
      keep_inputs(in_, run_, head_ * kParts + column_ / kColumns, in_.op.heads * kParts);
    }
  }

 private:
  static constexpr int kEights = kColumns / 8;  // of columns: pieces of a row
  static constexpr uint32_t kStateHalf = kChunkDim * kColumns * 2, kChangeHalf = 64 * kColumns * 2;

  __device__ const unsigned char* chunk_at(int chunk) const {
    const uint64_t index = static_cast<uint64_t>(first_chunk_ + chunk) * static_cast<uint32_t>(in_.op.heads) + head_;
    return at<const unsigned char>(in_.scratch) + index * kDeltaChunkBytes;
  }
  __device__ __forceinline__ static void bring(unsigned char* to, const unsigned char* from, uint32_t bytes,
                                               uint32_t barrier) {
    const uint32_t address = shared_address(to), step = kDeltaChunksThreads * 16;
    if (kCopiesInBulk) copy_in_bulk(address, from, bytes, barrier);
    for (uint32_t i = threadIdx.x * 16; !kCopiesInBulk && i < bytes; i += step) copy_ahead(address + i, from + i, true);
  }
  // Of a chunk, when nobody reads any more what was in their place; in bulk by one thread.
  __device__ void bring_first(int chunk) {
    constexpr uint32_t kBytes = 4 * kWideHalf;
    if (chunk < chunks_ && asks(room_.first, kBytes))
      bring(room_.w, chunk_at(chunk) + kChunkW, kBytes, shared_address(&room_.first));
    if (!kCopiesInBulk) copies_end_group();
  }
  __device__ void bring_second(int chunk) {
    constexpr uint32_t kKeys = 2 * kWideHalf, kMix = 2 * kSquareHalf;
    if (chunk < chunks_ && asks(room_.second, kKeys + kMix)) {
      bring(room_.keys, chunk_at(chunk) + kChunkK, kKeys, shared_address(&room_.second));
      bring(room_.mix, chunk_at(chunk) + kChunkP, kMix, shared_address(&room_.second));
    }
    if (!kCopiesInBulk) copies_end_group();
  }
  __device__ static bool asks(uint64_t& barrier, uint32_t bytes) {
    if (!kCopiesInBulk) return true;
    if (threadIdx.x != 0) return false;
    leave_to_copies();
    arrive_with_bulk(shared_address(&barrier), bytes);
    return true;
  }

  __device__ float* state_at(int n, int half) const {
    const int row = static_cast<int>(warp()) * 16 + row_ + 8 * half;
    return state_of(in_, run_, head_) + row * kChunkDim + column_ + 8 * n + pair_;
  }
  __device__ void load_state() {
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 two = *reinterpret_cast<const float2*>(state_at(n, half));
        state_[n][2 * half] = two.x;
        state_[n][2 * half + 1] = two.y;
      }
    }
  }
  __device__ void store_state() const {
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(state_at(n, half)) = make_float2(state_[n][2 * half], state_[n][2 * half + 1]);
    }
  }
  __device__ void publish_state() {
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_pair<kEights>(room_.state, kStateHalf, static_cast<int>(warp()) * 16 + row_ + 8 * half, 8 * n + pair_,
                            state_[n][2 * half], state_[n][2 * half + 1]);
    }
  }
  __device__ void load_u(const unsigned char* from, float (&u)[kEights][4]) const {
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row_ + row_ + 8 * half, column = column_ + 8 * n + pair_;
        const float2 two = *reinterpret_cast<const float2*>(from + kChunkU + (row * kChunkDim + column) * 4);
        u[n][2 * half] = two.x;
        u[n][2 * half + 1] = two.y;
      }
    }
  }

  // sums += A B, B = the columns of the tile at b_tile.
  __device__ __forceinline__ void multiply_rows(uint32_t b_tile, uint32_t b_half, int k, const uint32_t (&a_high)[4],
                                                const uint32_t (&a_low)[4], float (&sums)[kEights][4]) const {
#pragma unroll
    for (int n = 0; n < kEights / 2; ++n) {
      uint32_t b_high[4], b_low[4];
      load_matrices_turned(a_address<kEights>(b_tile, k * 16, 2 * n), b_high);
      load_matrices_turned(a_address<kEights>(b_tile + b_half, k * 16, 2 * n), b_low);
      multiply_pairs(sums[2 * n], a_high, a_low, b_high, b_low);
      multiply_pairs(sums[2 * n + 1], a_high, a_low, b_high + 2, b_low + 2);
    }
  }
  __device__ void multiply_state(float (&sums)[kEights][4]) const {
    const uint32_t a_tile = shared_address(of_queries_ ? room_.queries : room_.w);
    const uint32_t state = shared_address(room_.state);
#pragma unroll 4
    for (int k = 0; k < kChunkDim / 16; ++k) {
      uint32_t a_high[4], a_low[4];
      load_matrices(a_address<16>(a_tile, warp_row_, 2 * k), a_high);
      load_matrices(a_address<16>(a_tile + kWideHalf, warp_row_, 2 * k), a_low);
      multiply_rows(state, kStateHalf, k, a_high, a_low, sums);
    }
  }
  __device__ void publish_change(const float (&u)[kEights][4], const float (&sums)[kEights][4]) {
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_pair<kEights>(room_.change, kChangeHalf, warp_row_ + row_ + 8 * half, 8 * n + pair_,
                            u[n][2 * half] - sums[n][2 * half], u[n][2 * half + 1] - sums[n][2 * half + 1]);
    }
  }
  // out = Q S + P N.
  __device__ void write_out(int chunk, float (&sums)[kEights][4]) const {
    const uint32_t mix = shared_address(room_.mix), change = shared_address(room_.change);
#pragma unroll 1
    for (int k = 0; k * 16 <= warp_row_; ++k) {
      uint32_t a_high[4], a_low[4];
      load_matrices(a_address<8>(mix, warp_row_, 2 * k), a_high);
      load_matrices(a_address<8>(mix + kSquareHalf, warp_row_, 2 * k), a_low);
      multiply_rows(change, kChangeHalf, k, a_high, a_low, sums);
    }
    const RowTile tile = rows_of_chunk(run_, chunk);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row_ + row_ + 8 * half;
      if (row >= tile.count) continue;
      float* const out =
          row_of(in_.out, in_.out_width, run_.first_row + tile.offset + row) + head_ * kChunkDim + column_;
#pragma unroll
      for (int n = 0; n < kEights; ++n)
        *reinterpret_cast<float2*>(out + 8 * n + pair_) = make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
    }
  }
  __device__ void change_state(float decay) {
    const uint32_t keys = shared_address(room_.keys), change = shared_address(room_.change);
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state_[n][i] *= decay;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t a_high[4], a_low[4];
      load_matrices_turned(across_address<16>(keys, k * 16, static_cast<int>(warp()) * 2), a_high);
      load_matrices_turned(across_address<16>(keys + kWideHalf, k * 16, static_cast<int>(warp()) * 2), a_low);
      multiply_rows(change, kChangeHalf, k, a_high, a_low, state_);
    }
  }

  const Instruction& in_;
  const Run& run_;
  DeltaChunks<kColumns>& room_;
  const int head_, column_, first_chunk_;
  int chunks_, warp_row_, row_, pair_;
  bool of_queries_;
  float state_[kEights][4];
};

// Blocks: runs, of each the heads, of each parts of kColumns columns.
template <int kColumns>
__device__ __forceinline__ void delta_chunks_block(const Work& work, unsigned char* shared) {
  const Instruction& in = work.instruction;
  const Pass& pass = *at<const Pass>(work.pass);
  constexpr int kSplits = kChunkDim / kColumns;
  const int block = static_cast<int>(blockIdx.x), part = block % kSplits;
  const int head = block / kSplits % in.op.heads, number = block / kSplits / in.op.heads;
  if (number >= pass.runs || delta_chunks(pass.run[number]) == 0) return;
  int first_chunk = 0;
  for (int r = 0; r < number; ++r) first_chunk += delta_chunks(pass.run[r]);
  DeltaColumns<kColumns> columns(in, pass.run[number], head, part * kColumns, first_chunk,
                                 *reinterpret_cast<DeltaChunks<kColumns>*>(shared));
  columns.run();
}

}  // namespace baton::cuda
