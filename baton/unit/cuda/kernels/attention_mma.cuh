// Attention of rows that decode on tensor cores: keys and values of 16 bits, heads of 64, 128 or 256 values; the rest
// is attention.cuh's.
//
// Warps are in groups of as many as a head has 16 values, and a group has a page at a time, which comes to shared
// memory: keys first, then values, and those of its next page as soon as nobody reads there any more. A warp multiplies
// 16 keys with 64 values of the queries, and the group's scores meet in shared memory; then it adds up 16 values of all
// the page's rows. Queries and weights are the sum of two 16-bit values each, in columns beside each other: no bit of
// keys and values is lost, and of the others those behind the 22nd (bf16: the 16th). Groups have their own highest
// scores and sums, which are joined in order at the end.
#pragma once

#include <cstddef>

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
  static constexpr int kOfGroup = kWidth / 16;       // warps
  static constexpr int kGroups = kWarps / kOfGroup;  // pages at a time
  static constexpr int kSpans = kWidth / 64;         // of 64 values of a row, each of four warps
  static constexpr int kRowBytes = 2 * kWidth;
  static constexpr float kQueries = kBf16 ? 1 : 0x1p-6f;  // times queries: f16 ends at 65,504

  using Page = unsigned char[kPageTokens][kRowBytes];  // of a head; 16 bytes of a row lie as place() says
  // Shared memory in two places, of which one may be free before the other.
  struct First {
    Page keys[kGroups];                                         // behind them, of several groups, their sums
    unsigned char queries[2 * kHeadsTogether][kRowBytes + 16];  // of each head the high parts, then the low ones
    uint16_t weights[kGroups][2 * kHeadsTogether][64 + 8];      // of keys, as queries
    uint16_t value[kWidth];                                     // of the row, for who appends (attend_row.cuh)
    bool lost_key, lost_value;                                  // the same
  };
  struct Second {
    Page values[kGroups];
    float scores[kGroups][kSpans][kHeadsTogether][72];  // of 64 keys
    // Of each head: what its sums before count for, then the highest score and the sum.
    float kept[kGroups][kHeadsTogether], highest[kGroups][kHeadsTogether], sum[kGroups][kHeadsTogether];
  };
  static_assert(sizeof(First) <= kAttendShared / 2 && sizeof(Second) <= kAttendShared / 2);
  static_assert(sizeof(float) * kHeadsTogether <= kPageTokens * 2);  // sums of a group where its keys were
  static_assert(sizeof(First::weights) >= kRowBytes && offsetof(First, weights) % 16 == 0 &&
                offsetof(First, value) % 16 == 0);

  // `appended`: the row's own key and value are in the pages already, else when its page is the second of its group.
  // `page`: where the first tile of the group is, if it is known.
  __device__ __forceinline__ AttendMma(const Instruction& in, const Run& run, const AttendUnit& unit,
                                       const KeyParts& parts, bool appended, unsigned char* first,
                                       unsigned char* second)
      : AttendMma(in, run, unit, parts, appended, first, second, 0) {
    page_ = page_of(tile_);
  }
  __device__ __forceinline__ AttendMma(const Instruction& in, const Run& run, const AttendUnit& unit,
                                       const KeyParts& parts, bool appended, unsigned char* first,
                                       unsigned char* second, Address page)
      : in_(in),
        run_(run),
        unit_(unit),
        parts_(parts),
        first_(*reinterpret_cast<First*>(first)),
        second_(*reinterpret_cast<Second*>(second)),
        pages_(at<const Address>(run.pages)),
        tile_(parts.first_tile(unit.part) + group()),
        end_tile_(parts.first_tile(unit.part + 1)),
        // Of later pages it is read from memory, where it is by then.
        own_(!appended && unit.part + 1 == parts.count && end_tile_ - parts.first_tile(unit.part) <= kGroups ? run.start
                                                                                                             : -1),
        page_(page) {}

  // All threads of the block: bring_keys, then bring_values, and queries, all at once or value by value; a meeting of
  // the block; go_through. `appended` false: own_key and, until values are added up, own_value, too, where holds_own().
  __device__ __forceinline__ void bring_keys() { bring(first_.keys[group()], in_.slot, tile_, page_); }
  __device__ __forceinline__ void bring_values() { bring(second_.values[group()], in_.slot2, tile_, page_); }

  // Heads that are not there are zeros.
  __device__ __forceinline__ void put_queries() const {
    const float* const row = row_of(in_.x, in_.x_width, run_.first_row) + unit_.head * kWidth;
    for (int i = static_cast<int>(threadIdx.x); i < kHeadsTogether * kWidth / 2; i += kThreads) {
      const int head = i / (kWidth / 2), column = i % (kWidth / 2) * 2;
      float2 q = make_float2(0, 0);
      if (head < unit_.heads) q = *reinterpret_cast<const float2*>(row + head * kWidth + column);
      const Split split = split_exactly<kBf16>(q.x * kQueries, q.y * kQueries);
      *reinterpret_cast<uint32_t*>(&first_.queries[2 * head][column * 2]) = split.high;
      *reinterpret_cast<uint32_t*>(&first_.queries[2 * head + 1][column * 2]) = split.low;
    }
  }
  __device__ __forceinline__ void put_query(int head, int column, float value) const {
    const Split split = split_exactly<kBf16>(value * kQueries, 0);
    *reinterpret_cast<uint16_t*>(&first_.queries[2 * head][column * 2]) = static_cast<uint16_t>(split.high);
    *reinterpret_cast<uint16_t*>(&first_.queries[2 * head + 1][column * 2]) = static_cast<uint16_t>(split.low);
  }

  __device__ __forceinline__ static int group() { return static_cast<int>(warp()) / kOfGroup; }

  // The row's own, for who appends it: what a type keeps nothing of is lost; the value; until weights are made, a key.
  __device__ __forceinline__ bool& lost_key() const { return first_.lost_key; }
  __device__ __forceinline__ bool& lost_value() const { return first_.lost_value; }
  __device__ __forceinline__ unsigned char* kept_value() const {
    return reinterpret_cast<unsigned char*>(first_.value);
  }
  __device__ __forceinline__ unsigned char* kept_key() const {
    return reinterpret_cast<unsigned char*>(first_.weights);
  }
  // Whether the row's own key and value are to be put where its page comes to; where a piece of 16 bytes of them lies.
  __device__ __forceinline__ bool holds_own() const { return own_ >= 0; }
  __device__ __forceinline__ unsigned char* own_key(int piece) const { return own_at(first_.keys, piece); }
  __device__ __forceinline__ unsigned char* own_value(int piece) const { return own_at(second_.values, piece); }

  // out: whole(i, value) of the values of a row's only part, counted from the first of the unit's heads; else
  // part(head, i, value), i = kWidth and kWidth + 1 being the highest score and the sum. meanwhile(): by warps that
  // have nothing else to do, behind the first scores and before values are added up.
  template <class Out, class Meanwhile>
  __device__ __forceinline__ void go_through(const Out& out, const Meanwhile& meanwhile) {
    bool first = true;
    while (tile_ < end_tile_) {
      const int next = tile_ + kGroups;
      const Address next_page = page_of(next);
      copies_wait<1>();
      meet_group();
      multiply_keys();
      meet_group();
      bring(first_.keys[group()], in_.slot, next, next_page);
      if (of_group() < kHeadsTogether) {
        weigh(of_group());
      } else if (first) {
        meanwhile();
      }
      first = false;
      copies_wait<1>();
      meet_group();
      add_values();
      if (next < end_tile_) meet_group();
      bring(second_.values[group()], in_.slot2, next, next_page);
      tile_ = next;
    }
    copies_wait<0>();
    join(out);
    meet();  // nobody reads what others bring next
  }

 private:
  static constexpr float kLog2E = 1.44269504f;

  // What a lane has of a tile of tensor cores: rows or columns by its eighth, terms by its place there.
  __device__ static int eighth() { return static_cast<int>(lane()) / 4; }
  __device__ static int fourth() { return static_cast<int>(lane()) % 4; }
  __device__ static int of_group() { return static_cast<int>(warp()) % kOfGroup; }
  __device__ static void meet_group() {
    if constexpr (kGroups == 1) {
      meet();
    } else {
      meet_few<kOfGroup * 32>(3 + static_cast<uint32_t>(group()));
    }
  }

  // Of a row's pieces of 16 bytes: eight rows' same one lie in different banks.
  __device__ static int place(int row, int piece) { return (piece ^ (row & 7)) * 16; }
  __device__ __forceinline__ unsigned char* own_at(Page* pages, int piece) const {
    const int row = own_ % kPageTokens;
    return &pages[own_ / kPageTokens - parts_.first_tile(unit_.part)][row][place(row, piece)];
  }

  __device__ __forceinline__ bool seen(int position) const {
    return position >= parts_.seen_from && position <= run_.start;
  }

  __device__ __forceinline__ Address page_of(int tile) const { return tile < end_tile_ ? pages_[tile] : 0; }
  // The group's part of a page, as a group of copies; rows that are not seen are zeros.
  __device__ __forceinline__ void bring(Page& to, const Place& place_of, int tile, Address page) const {
    constexpr int kPieces = kRowBytes / 16, kThreadsOf = 32 * kOfGroup, kStep = kThreadsOf / kPieces;
    static_assert(kPageTokens == 4 * kStep && kStep % 8 == 0);  // a thread's rows have their pieces in one place
    if (tile < end_tile_) {
      const int thread = of_group() * 32 + static_cast<int>(lane()), piece = thread % kPieces, row = thread / kPieces;
      const auto* const from = at<const unsigned char>(
          page + place_of.offset + static_cast<uint32_t>((unit_.kv_head * kPageTokens + row) * kRowBytes + piece * 16));
      const uint32_t into = shared_address(&to[row][place(row, piece)]);
      const int position = tile * kPageTokens + row;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (position + i * kStep != own_)
          copy_ahead(into + i * kStep * kRowBytes, from + i * kStep * kRowBytes, seen(position + i * kStep));
      }
    }
    copies_end_group();
  }

  // Rows are keys, columns the parts of queries. A lane's scores, two keys and the head of its fourth, of the warp's
  // span, go to the group.
  __device__ __forceinline__ void multiply_keys() const {
    const int set = of_group() % 4, span = of_group() / 4, row = set * 16 + static_cast<int>(lane()) % 16;
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t keys[4];
      load_matrices(
          shared_address(&first_.keys[group()][row][place(row, span * 8 + 2 * i + static_cast<int>(lane()) / 16)]),
          keys);
      const unsigned char* const q = &first_.queries[eighth()][(span * 64 + i * 16 + fourth() * 2) * 2];
      multiply_add<kBf16>(sums, keys, *reinterpret_cast<const uint32_t*>(q),
                          *reinterpret_cast<const uint32_t*>(q + 16));
    }
    float* const to = second_.scores[group()][span][fourth()] + set * 16 + eighth();
    to[0] = fmaf(sums[1], kLowCounts<kBf16>, sums[0]);
    to[8] = fmaf(sums[3], kLowCounts<kBf16>, sums[2]);
  }

  // Weights of a head; a lane has two keys.
  __device__ __forceinline__ void weigh(int head) {
    const float scale = in_.op.scale / kQueries, cap = in_.op.cap;
    const int key = 2 * static_cast<int>(lane()), position = tile_ * kPageTokens + key;
    float2 of = make_float2(0, 0);
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      const float2 more = *reinterpret_cast<const float2*>(&second_.scores[group()][span][head][key]);
      of.x += more.x, of.y += more.y;
    }
    of.x = seen(position) ? capped(of.x * scale, cap) : no_score();
    of.y = seen(position + 1) ? capped(of.y * scale, cap) : no_score();
    const float highest = fmaxf(highest_, warp_max(fmaxf(of.x, of.y)));
    const float kept = highest == highest_ ? 1.0f : exp2f((highest_ - highest) * kLog2E);
    highest_ = highest;
    of.x = exp2f((of.x - highest) * kLog2E), of.y = exp2f((of.y - highest) * kLog2E);
    const Split split = split_exactly<kBf16>(of.x, of.y);
    *reinterpret_cast<uint32_t*>(&first_.weights[group()][2 * head][key]) = split.high;
    *reinterpret_cast<uint32_t*>(&first_.weights[group()][2 * head + 1][key]) = split.low;
    sum_ = fmaf(sum_, kept, warp_sum(of.x + of.y));
    if (lane() == 0)
      second_.kept[group()][head] = kept, second_.highest[group()][head] = highest_, second_.sum[group()][head] = sum_;
  }

  // Rows are the warp's 16 values, columns parts of the fourth's head.
  __device__ __forceinline__ void add_values() {
    const float kept = second_.kept[group()][fourth()];
#pragma unroll
    for (int i = 0; i < 4; ++i) out_[i] *= kept;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 16 + static_cast<int>(lane()) / 16 * 8 + static_cast<int>(lane()) % 8;
      uint32_t values[4];
      load_matrices_turned(
          shared_address(&second_.values[group()][row][place(row, of_group() * 2 + static_cast<int>(lane()) / 8 % 2)]),
          values);
      const uint16_t* const weights = &first_.weights[group()][eighth()][16 * i + 2 * fourth()];
      multiply_add<kBf16>(out_, values, *reinterpret_cast<const uint32_t*>(weights),
                          *reinterpret_cast<const uint32_t*>(weights + 8));
    }
  }

  // All groups' sums become those of the part.
  template <class Out>
  __device__ __forceinline__ void join(const Out& out) {
    const int column = of_group() * 16 + eighth();
    const float value = fmaf(out_[1], kLowCounts<kBf16>, out_[0]), other = fmaf(out_[3], kLowCounts<kBf16>, out_[2]);
    if constexpr (kGroups == 1) {
      const float highest = second_.highest[0][fourth()], sum = second_.sum[0][fourth()];
      if (fourth() < unit_.heads) {
        put(fourth(), column, value, highest, sum, out);
        put(fourth(), column + 8, other, highest, sum, out);
      }
    } else {
      float* const own = sums_of(group()) + fourth() * kWidth + column;
      own[0] = value, own[8] = other;
      meet();
      const int groups = min(kGroups, end_tile_ - parts_.first_tile(unit_.part));
      for (int i = static_cast<int>(threadIdx.x); i < unit_.heads * kWidth; i += kThreads)
        put_joined(i / kWidth, i % kWidth, groups, out);
    }
  }
  __device__ __forceinline__ float* sums_of(int of) const { return reinterpret_cast<float*>(first_.keys[of]); }
  template <class Out>
  __device__ __forceinline__ void put_joined(int head, int column, int groups, const Out& out) const {
    float highest = no_score(), total = 0, sum = 0;
    for (int g = 0; g < groups; ++g) highest = fmaxf(highest, second_.highest[g][head]);
    for (int g = 0; g < groups; ++g) {
      const float own = second_.highest[g][head], factor = own == highest ? 1.0f : exp2f((own - highest) * kLog2E);
      total = fmaf(factor, sums_of(g)[head * kWidth + column], total);
      sum = fmaf(factor, second_.sum[g][head], sum);
    }
    put(head, column, total, highest, sum, out);
  }
  template <class Out>
  __device__ __forceinline__ void put(int head, int column, float value, float highest, float sum,
                                      const Out& out) const {
    if (parts_.count == 1) return out.whole(head * kWidth + column, quotient(value, sum));
    out.part(head, column, value);
    if (column == 0) out.part(head, kWidth, highest), out.part(head, kWidth + 1, sum);
  }

  const Instruction& in_;
  const Run& run_;
  const AttendUnit& unit_;
  const KeyParts& parts_;
  First& first_;
  Second& second_;
  const Address* const pages_;
  int tile_, end_tile_, own_;  // own_: position of a row that no copy brings
  float out_[4] = {};
  float highest_ = no_score(), sum_ = 0;  // of the head whose weights the warp makes
  Address page_;                          // of the first tile
};

}  // namespace baton::cuda
