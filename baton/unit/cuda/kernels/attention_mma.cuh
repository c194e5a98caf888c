// Attention of rows that decode on tensor cores: keys and values of 16 bits, heads of 64, 128 or 256 values; the rest
// is attention.cuh's.
//
// Warps are in groups of as many as a head has 64 values, and a group has a page's keys at a time. A warp multiplies
// its share of the keys with all values of the queries, and the group's scores meet in shared memory; then it adds up
// 64 values of all the page's rows. Rows come from memory right into the registers that tensor cores take them from: of
// a sum of products any order of terms is right, so a lane has 16 bytes of a row, and what it has is the same of both
// factors. Queries and weights are the sum of two 16-bit values each, in columns beside each other: no bit of keys and
// values is lost, and of the others those behind the 22nd (bf16: the 16th). Groups have their own highest scores and
// sums, which are joined in order at the end.
#pragma once

#include "baton/unit/cuda/kernels/attention_parts.cuh"
#include "baton/unit/cuda/kernels/tensor.cuh"

namespace baton::cuda {

// Two values as sums of a high and a low part, which counts for kLowCounts.
template <bool kBf16>
inline constexpr float kLowCounts = kBf16 ? 1.0f : 0x1p-11f;
template <bool kBf16>
__device__ __forceinline__ Split split_exactly(float first, float second) {
  if constexpr (kBf16) {
    return split_pair(first, second);
  } else {
    Split split;
    split.high = narrow_pair<false>(first, second);
    const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&split.high));
    split.low = narrow_pair<false>((first - high.x) * 0x1p11f, (second - high.y) * 0x1p11f);
    return split;
  }
}

template <int kWidth, bool kBf16>
class AttendMma {
 public:
  static constexpr int kOfGroup = kWidth / 64;       // warps
  static constexpr int kGroups = kWarps / kOfGroup;  // pages at a time
  static constexpr int kSets = 4 / kOfGroup;         // of 16 keys, of a warp
  static constexpr int kChunks = kWidth / 32;        // of a row, that four lanes read
  static constexpr uint32_t kRowBytes = 2 * kWidth;
  static constexpr float kQueries = kBf16 ? 1 : 0x1p-6f;  // times queries: f16 ends at 65,504

  struct Shared {
    unsigned char queries[2 * kHeadsTogether][kWidth * 2 + 64];  // of each head the high parts, then the low ones
    float scores[kGroups][2][kHeadsTogether][72];                // of 64 keys, in turns
    float sums[kGroups][kHeadsTogether][kWidth + 16];
    float highest[kGroups][kHeadsTogether], sum[kGroups][kHeadsTogether];
    // What would take registers from the keys and values that are on their way.
    AttendUnit unit;
    Address out, scratch;  // of the row; of the unit's part and first head
    int groups;            // that have a page
    int64_t part_pitch;    // values from one head's part to the next's
    float scale, cap;
  };
  static_assert(sizeof(Shared) <= kAttendShared);

  __device__ AttendMma(const Instruction& in, const Run& run, const AttendUnit& unit, const KeyParts& parts,
                       unsigned char* shared)
      : pages_(at<const Address>(run.pages)), shared_(*reinterpret_cast<Shared*>(shared)) {
    tile_ = parts.first_tile(unit.part) + group();
    end_tile_ = parts.first_tile(unit.part + 1);
    seen_from_ = parts.seen_from;
    end_ = run.start + 1;
    if (threadIdx.x == 0) {
      const int values = static_cast<int>(part_values(in.op));
      shared_.unit = unit;
      shared_.out = reinterpret_cast<Address>(row_of(in.out, in.out_width, run.first_row) + unit.head * kWidth);
      shared_.part_pitch = static_cast<int64_t>(in.splits) * values;
      const int64_t head = static_cast<int64_t>(unit.run) * in.op.heads + unit.head;
      shared_.scratch = in.scratch + static_cast<Address>((head * in.splits + unit.part) * values) * sizeof(float);
      shared_.groups = min(kGroups, end_tile_ - tile_);
      shared_.scale = in.op.scale / kQueries;
      shared_.cap = in.op.cap;
    }
    queries_ = reinterpret_cast<Address>(row_of(in.x, in.x_width, run.first_row) + unit.head * kWidth);
    heads_ = unit.heads;
    const uint64_t of_head = static_cast<uint64_t>(unit.kv_head) * kPageTokens * kRowBytes;
    keys_at_ = in.slot.offset + of_head + static_cast<uint32_t>(of_group() * kSets * 16 + eighth()) * kRowBytes +
               static_cast<uint32_t>(fourth()) * 16;
    values_at_ = in.slot2.offset + of_head + static_cast<uint32_t>(fourth()) * 4 * kRowBytes +
                 static_cast<uint32_t>(of_group() * 128 + eighth() * 16);
  }

  __device__ void run(bool alone) {
    uint4 window[kWindow];
    Address page = tile_ < end_tile_ ? pages_[tile_] : 0;
    bring(0, kWindow, page, window);
    put_queries();
    meet();  // and what the first thread put down
    for (int turn = 0; tile_ < end_tile_; turn ^= 1) {
      const int next = tile_ + kGroups;
      const Address next_page = next < end_tile_ ? pages_[next] : 0;
      multiply_keys(page, window, shared_.scores[group()][turn]);
      meet_group();
      uint32_t weights[4][2];
      weigh(shared_.scores[group()][turn], weights);
      add_values(0, page, window, weights);
      add_values(4, page, window, weights);
      tile_ = next;
      page = next_page;
      add_values(8, page, window, weights);
      add_values(12, page, window, weights);
    }
    join(alone);
  }

 private:
  static constexpr float kLog2E = 1.44269504f;
  static constexpr int kWindow = 8;  // pieces that are on their way to a lane: 96 registers are all that there are

  // What a lane has of a tile of tensor cores: rows or columns by its eighth, terms by its place there.
  __device__ static int eighth() { return static_cast<int>(lane()) / 4; }
  __device__ static int fourth() { return static_cast<int>(lane()) % 4; }
  __device__ static int group() { return static_cast<int>(warp()) / kOfGroup; }
  __device__ static int of_group() { return static_cast<int>(warp()) % kOfGroup; }
  __device__ static void meet_group() {
    if constexpr (kOfGroup == 1) {
      __syncwarp();
    } else {
      meet_few<kOfGroup * 32>(3 + static_cast<uint32_t>(group()));
    }
  }

  // Of a page's rows, by number.
  __device__ __forceinline__ bool seen(int key) const {
    const int position = tile_ * kPageTokens + key;
    return position >= seen_from_ && position < end_;
  }

  // Pieces of a page, 16 bytes each, the next ones in the places of those that are done. Below 16: of the lane's first
  // (even numbers) or second key of a set, 8 values of a chunk. Above: 8 values of its eighth, of four keys of its
  // fourth of 16. page 0: none.
  __device__ __forceinline__ void bring(int first, int count, Address page, uint4 (&window)[kWindow]) const {
#pragma unroll
    for (int i = first; i < first + count; ++i) {
      if (i < 16) {
        const int row = i / (2 * kChunks) * 16 + i % 2 * 8, chunk = i / 2 % kChunks;
        const bool wanted = page != 0 && seen(of_group() * kSets * 16 + row + eighth());
        window[i % kWindow] = load_through(page + keys_at_ + row * kRowBytes + chunk * 64, wanted);
      } else {
        const int row = (i - 16) / 4 * 16 + i % 4;
        const bool wanted = page != 0 && seen(row + fourth() * 4);
        window[i % kWindow] = load_through(page + values_at_ + row * kRowBytes, wanted);
      }
    }
  }

  // Heads that are not there are zeros.
  __device__ __forceinline__ void put_queries() const {
    const float* const row = at<const float>(queries_);
    for (int i = static_cast<int>(threadIdx.x); i < kHeadsTogether * kWidth / 2; i += kThreads) {
      const int head = i / (kWidth / 2), column = i % (kWidth / 2) * 2;
      float2 q = make_float2(0, 0);
      if (head < heads_) q = *reinterpret_cast<const float2*>(row + head * kWidth + column);
      const Split split = split_exactly<kBf16>(q.x * kQueries, q.y * kQueries);
      *reinterpret_cast<uint32_t*>(&shared_.queries[2 * head][column * 2]) = split.high;
      *reinterpret_cast<uint32_t*>(&shared_.queries[2 * head + 1][column * 2]) = split.low;
    }
  }

  // Rows are keys, columns the parts of queries. A lane's scores, two keys of each set and the head of its fourth, go
  // to the group.
  __device__ __forceinline__ void multiply_keys(Address page, uint4 (&window)[kWindow],
                                                float (&to)[kHeadsTogether][72]) const {
    float sums[2][4] = {};
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      const int set = i / (2 * kChunks), chunk = i / 2 % kChunks;
      const uint4 q = *reinterpret_cast<const uint4*>(&shared_.queries[eighth()][chunk * 64 + fourth() * 16]);
      const uint4& one = window[i % kWindow];
      const uint4& other = window[i % kWindow + 1];
      const uint32_t first[4] = {one.x, other.x, one.y, other.y}, second[4] = {one.z, other.z, one.w, other.w};
      multiply_add<kBf16>(sums[0], first, q.x, q.y);
      multiply_add<kBf16>(sums[1], second, q.z, q.w);
      bring(i + kWindow, 2, page, window);
      if (chunk == kChunks - 1) put_scores(set, sums, to);
    }
  }
  __device__ __forceinline__ void put_scores(int set, float (&sums)[2][4], float (&to)[kHeadsTogether][72]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int key = (of_group() * kSets + set) * 16 + k * 8 + eighth();
      const float high = sums[0][2 * k] + sums[1][2 * k], low = sums[0][2 * k + 1] + sums[1][2 * k + 1];
      to[fourth()][key] =
          seen(key) ? capped(fmaf(low, kLowCounts<kBf16>, high) * shared_.scale, shared_.cap) : no_score();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[0][k] = sums[1][k] = 0;
  }

  // Weights of the keys that the lane has values of, of half its eighth's head.
  __device__ __forceinline__ void weigh(const float (&scores)[kHeadsTogether][72], uint32_t (&parts)[4][2]) {
    float highest = no_score(), weights[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 four = *reinterpret_cast<const float4*>(&scores[eighth() / 2][16 * i + 4 * fourth()]);
      weights[i][0] = four.x, weights[i][1] = four.y, weights[i][2] = four.z, weights[i][3] = four.w;
      highest = fmaxf(highest, fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)));
    }
    highest = fmaxf(highest, __shfl_xor_sync(kAll, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(kAll, highest, 2));
    highest = fmaxf(highest, highest_);
    const float kept = highest == highest_ ? 1.0f : exp2f((highest_ - highest) * kLog2E);
    highest_ = highest;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sum += weights[i][k] = exp2f((weights[i][k] - highest) * kLog2E);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const Split split = split_exactly<kBf16>(weights[i][2 * k], weights[i][2 * k + 1]);
        parts[i][k] = (eighth() & 1) != 0 ? split.low : split.high;
      }
    }
    sum_ = fmaf(sum_, kept, sum);
    const float factor = __shfl_sync(kAll, kept, fourth() * 8);
#pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out_[t][i] *= factor;
    }
  }

  // out_[t]: rows are values 2 t (0, 1) and 2 t + 1 (2, 3) of the eighth's 8, columns parts of the fourth's head.
  // `page`: of what comes in their place.
  __device__ __forceinline__ void add_values(int from, Address page, uint4 (&window)[kWindow],
                                             const uint32_t (&weights)[4][2]) {
    const int at = from % kWindow;
    const auto add = [&](float(&sum)[4], uint32_t k0, uint32_t k1, uint32_t k2, uint32_t k3) {
      const uint32_t a[4] = {low_halves(k0, k1), high_halves(k0, k1), low_halves(k2, k3), high_halves(k2, k3)};
      multiply_add<kBf16>(sum, a, weights[from / 4][0], weights[from / 4][1]);
    };
    add(out_[0], window[at].x, window[at + 1].x, window[at + 2].x, window[at + 3].x);
    add(out_[1], window[at].y, window[at + 1].y, window[at + 2].y, window[at + 3].y);
    add(out_[2], window[at].z, window[at + 1].z, window[at + 2].z, window[at + 3].z);
    add(out_[3], window[at].w, window[at + 1].w, window[at + 2].w, window[at + 3].w);
    bring((from + 16 + kWindow) % 32, 4, page, window);
  }

  // All groups' sums become those of the part.
  __device__ __forceinline__ void join(bool alone) {
    sum_ += __shfl_xor_sync(kAll, sum_, 1);
    sum_ += __shfl_xor_sync(kAll, sum_, 2);
    if (of_group() == 0 && fourth() == 0 && eighth() % 2 == 0) {
      shared_.highest[group()][eighth() / 2] = highest_;
      shared_.sum[group()][eighth() / 2] = sum_;
    }
    float value[8];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      value[2 * t] = fmaf(out_[t][1], kLowCounts<kBf16>, out_[t][0]);
      value[2 * t + 1] = fmaf(out_[t][3], kLowCounts<kBf16>, out_[t][2]);
    }
    auto* const to = reinterpret_cast<float4*>(&shared_.sums[group()][fourth()][of_group() * 64 + eighth() * 8]);
    to[0] = make_float4(value[0], value[1], value[2], value[3]);
    to[1] = make_float4(value[4], value[5], value[6], value[7]);
    meet();
    for (int i = static_cast<int>(threadIdx.x); i < shared_.unit.heads * kWidth; i += kThreads)
      write(i / kWidth, i % kWidth, alone);
    meet();
  }

  __device__ __forceinline__ void write(int head, int column, bool alone) const {
    float highest = no_score(), total = 0, sum = 0;
    for (int g = 0; g < shared_.groups; ++g) highest = fmaxf(highest, shared_.highest[g][head]);
    for (int g = 0; g < shared_.groups; ++g) {
      const float own = shared_.highest[g][head], factor = own == highest ? 1.0f : exp2f((own - highest) * kLog2E);
      total = fmaf(factor, shared_.sums[g][head][column], total);
      sum = fmaf(factor, shared_.sum[g][head], sum);
    }
    if (alone) {
      at<float>(shared_.out)[head * kWidth + column] = quotient(total, sum);
      return;
    }
    float* const to = at<float>(shared_.scratch) + head * shared_.part_pitch;
    to[column] = total;
    if (column == 0) to[kWidth] = highest, to[kWidth + 1] = sum;
  }

  const Address* const pages_;
  Shared& shared_;
  Address queries_;
  int heads_, tile_, end_tile_, seen_from_, end_;
  uint64_t keys_at_, values_at_;  // in a page: of the lane's first key and values
  float out_[4][4] = {};
  float highest_ = no_score(), sum_ = 0;  // of half its eighth's head; the sum of this lane's keys
};

}  // namespace baton::cuda
