// Queries, keys, values and attention of one row that decodes, in one: Do::kAttendRow. A unit, a block's, has a key
// head with the query heads that share it, and a part of the keys; it makes the queries itself, whoever has the last
// part appends the row's key and value, which nobody else reads in this launch, and whoever has the first hands on the
// gates.
#pragma once

#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/heads.cuh"
#include "baton/unit/cuda/kernels/words.cuh"

namespace baton::cuda {

// Of words the values of a head that a lane has.
class HeadOfWords {
 public:
  // Of the values from the `first` of a register on.
  __device__ __forceinline__ HeadOfWords(Address words, int first, int width)
      : from_(at<const uint32_t>(words) + first + lane()), width_(width) {}
  // Whether all have come that the lane has.
  __device__ __forceinline__ bool look(float (&v)[heads::kOfLane]) const {
    uint32_t words[heads::kOfLane];
#pragma unroll
    for (int k = 0; k < heads::kOfLane; ++k) {
      words[k] = 0;
      if (static_cast<int>(lane()) + 32 * k < width_) words[k] = look_at_word(from_ + 32 * k);
    }
    bool all = true;
#pragma unroll
    for (int k = 0; k < heads::kOfLane; ++k) {
      all = all && has_come(words[k]);
      v[k] = __uint_as_float(words[k]);
    }
    return all;
  }

 private:
  const uint32_t* from_;
  int width_;
};

// What comes out of a unit, as words.
struct AttendRowOut {
  const Instruction& in;
  const AttendUnit& unit;
  __device__ __forceinline__ void whole(int i, float value) const {
    store_word(at<uint32_t>(in.out) + unit.head * in.op.width + i, word_of_value(value));
  }
  __device__ __forceinline__ void part(int head, int i, float value) const {
    store_word(at<uint32_t>(in.scratch) + part_at(in, unit, head) + i, word_of_value(value));
  }
};

// A unit's gates, by the last half of the block's threads: at the same time as others have its heads.
template <int kWidth>
__device__ __forceinline__ void hand_gates_on(const Instruction& in, const AttendUnit& unit) {
  constexpr int kBy = kThreads / 2, kEach = kHeadsTogether * kWidth / kBy;
  uint32_t words[kEach];
  const auto each = [&](const auto& what) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int i = static_cast<int>(threadIdx.x) - kBy + k * kBy;
      if (i < unit.heads * kWidth) what(words[k], unit.head + i / kWidth, i % kWidth);
    }
  };
  for (bool missing = true; __any_sync(kAll, missing);) {
    missing = false;
    each([&](uint32_t& word, int head, int column) {
      word = look_at_word(at<const uint32_t>(in.x) + head * in.x_stride + kWidth + column);
      missing = missing || !has_come(word);
    });
    if (missing) looked_in_vain();
  }
  each([&](uint32_t word, int head, int column) { store_word(at<uint32_t>(in.out2) + head * kWidth + column, word); });
}

// A unit of a block, as the clerk finds it out for the first, which takes divisions and what of pages has to be read:
// in shared memory.
struct AttendRowUnit {
  static constexpr int kGroupsMost = 4;
  KeyParts parts;
  AttendUnit unit;
  int32_t there;               // 0: the block has none
  Address pages[kGroupsMost];  // of its first tiles
  Address own_page;            // of the row
  heads::TurnsThere turns;

  // By a warp.
  __device__ __forceinline__ void make(const Instruction& in, const Pass& pass, int number) {
    const Run& run = pass.run[0];
    const KeyParts of = key_parts(in.op, run.start, in.scratch != 0 ? in.splits : 1);
    const int each = in.op.kv_heads, part = number / each, kv_head = number - part * each;
    const int shared_by = in.op.heads / each, own = static_cast<int>(lane());
    const bool has = number < each * of.count;
    if (own == 0) parts = of, unit = {0, kv_head, kv_head * shared_by, shared_by, part}, there = has ? 1 : 0;
    if (!has) return;
    const Address* const from = at<const Address>(run.pages);
    const int tile = of.first_tile(part) + own;
    if (own < kGroupsMost) pages[own] = tile < of.first_tile(part + 1) ? from[tile] : 0;
    if (own == kGroupsMost) own_page = from[run.start / kPageTokens];
    turns.make(heads::turn_of(in, in.rope, 0, run.start));
    // What heads are multiplied with is asked for soon.
    const int width = in.op.width, i = own % 8 * 32;
    if (own < 16 && in.vectors[own / 8] != 0 && i < width) fetch_line(at<const float>(in.vectors[own / 8]) + i);
  }
};
static_assert(sizeof(KeyParts) % 8 == 0 && sizeof(AttendUnit) == 20);

// What warps of a unit do before they attend: the first ones have a query head each, the next two have the row's key
// and value, where the unit has the last part, and the last ones have the gates, where it has the first. What there is
// to be read but words is asked for before words. Key and value go to the page and, where that is on its way to shared
// memory without them, there. They are no numbers where a type keeps nothing of either.
template <int kWidth, bool kBf16>
class HeadsOfRow {
 public:
  using Mma = AttendMma<kWidth, kBf16>;

  __device__ __forceinline__ HeadsOfRow(const Instruction& in, const Run& run, const AttendRowUnit& of, const Mma& mma)
      : in_(in), run_(run), of_(of), mma_(mma) {}

  __device__ __forceinline__ void put() const {
    const int own = static_cast<int>(warp());
    const bool last = is_last(of_);
    if (own < of_.unit.heads) {
      put_query();
    } else if (own < kHeadsTogether) {
      const float none[heads::kOfLane] = {};
      put_query(none);
    } else if (last && own == kKeyWarp) {
      put_key();
    } else if (last && own == kValueWarp) {
      keep_value();
    } else if (of_.unit.part == 0 && in_.out2 != 0 && own >= kWarps / 2) {
      hand_gates_on<kWidth>(in_, of_.unit);
    }
    __syncwarp();
  }
  // Behind a meeting.
  __device__ __forceinline__ void put_value() const {
    if (static_cast<int>(warp()) != kValueWarp || !is_last(of_)) return;
    const bool lost = mma_.lost_value() || mma_.lost_key();
    if (lost) {
      each([&](int i, int) { heads::put_value(kForm, mma_.kept_value(), i, rows::no_number()); });
      __syncwarp();
    }
    if (!has_piece()) return;
    const uint4 piece = piece_of(mma_.kept_value());
    if (lost) *reinterpret_cast<uint4*>(place(in_.slot2)) = piece;
    if (mma_.holds_own()) *reinterpret_cast<uint4*>(mma_.own_value(static_cast<int>(lane()))) = piece;
  }

 private:
  static constexpr Form kForm = kBf16 ? Form::kBF16 : Form::kF16;
  static constexpr int kKeyWarp = kHeadsTogether, kValueWarp = kHeadsTogether + 1;
  static_assert(kValueWarp < kWarps / 2 && kWidth / 8 <= 32);

  __device__ __forceinline__ static bool is_last(const AttendRowUnit& of) { return of.unit.part + 1 == of.parts.count; }
  template <class What>
  __device__ __forceinline__ static void each(const What& what) {
#pragma unroll
    for (int k = 0; k < kWidth / 32; ++k) what(static_cast<int>(lane()) + 32 * k, k);
  }
  __device__ __forceinline__ static bool is_lost(const float (&v)[heads::kOfLane]) {
    uint32_t largest = 0;
    each([&](int, int k) { largest = max(largest, __float_as_uint(v[k]) & 0x7fffffffu); });
    return heads::is_lost(kForm, __reduce_max_sync(kAll, largest));
  }
  // Lanes have pieces of 16 bytes of a row.
  __device__ __forceinline__ static bool has_piece() { return static_cast<int>(lane()) < kWidth / 8; }
  __device__ __forceinline__ static uint4 piece_of(const unsigned char* row) {
    return *reinterpret_cast<const uint4*>(row + lane() * 16);
  }
  __device__ __forceinline__ unsigned char* place(const Place& of) const {
    return at<unsigned char>(of_.own_page + of.offset) +
           static_cast<uint32_t>((of_.unit.kv_head * kPageTokens + run_.start % kPageTokens) * Mma::kRowBytes +
                                 static_cast<int>(lane()) * 16);
  }
  __device__ __forceinline__ void turned(Address words, int first, Address scales, float (&v)[heads::kOfLane]) const {
    float by[heads::kOfLane];
    const auto* const from = at<const float>(scales);
    each([&](int i, int k) { by[k] = from != nullptr ? from[i] : 1.0f; });
    take(words, first, v);
#pragma unroll
    for (int k = kWidth / 32; k < heads::kOfLane; ++k) by[k] = 1.0f;
    if (from != nullptr) heads::PlainTurn::scale_all(v, kWidth, in_.op.eps, by);
    const bool adjacent = in_.rope.pairing == RopePairing::kAdjacent;
    heads::PlainTurn::turn_all(v, in_.rope.rotary / 32, adjacent,
                               [&](int k) { return of_.turns.of_lane(k, adjacent); });
  }
  __device__ __forceinline__ static void take(Address words, int first, float (&v)[heads::kOfLane]) {
    const HeadOfWords from(words, first, kWidth);
    while (!__all_sync(kAll, from.look(v))) looked_in_vain();
  }
  __device__ __forceinline__ void put_query(const float (&v)[heads::kOfLane]) const {
    each([&](int i, int k) { mma_.put_query(static_cast<int>(warp()), i, v[k]); });
  }
  __device__ __forceinline__ void put_query() const {
    float v[heads::kOfLane];
    const int stride = in_.x_stride != 0 ? in_.x_stride : kWidth;
    turned(in_.x, (of_.unit.head + static_cast<int>(warp())) * stride, in_.vectors[0], v);
    put_query(v);
  }
  __device__ __forceinline__ void put_key() const {
    float v[heads::kOfLane];
    turned(in_.y, of_.unit.kv_head * kWidth, in_.vectors[1], v);
    each([&](int i, int k) { heads::put_value(kForm, mma_.kept_key(), i, v[k]); });
    const bool lost = is_lost(v);
    if (lane() == 0) mma_.lost_key() = lost;
    __syncwarp();
    if (!has_piece()) return;
    const uint4 piece = piece_of(mma_.kept_key());
    *reinterpret_cast<uint4*>(place(in_.slot)) = piece;
    if (mma_.holds_own()) *reinterpret_cast<uint4*>(mma_.own_key(static_cast<int>(lane()))) = piece;
  }
  __device__ __forceinline__ void keep_value() const {
    float v[heads::kOfLane];
    take(in_.z, of_.unit.kv_head * kWidth, v);
    each([&](int i, int k) { heads::put_value(kForm, mma_.kept_value(), i, v[k]); });
    const bool lost = is_lost(v);
    if (lane() == 0) mma_.lost_value() = lost;
    __syncwarp();
    if (has_piece()) *reinterpret_cast<uint4*>(place(in_.slot2)) = piece_of(mma_.kept_value());
  }

  const Instruction& in_;
  const Run& run_;
  const AttendRowUnit& of_;
  const Mma& mma_;
};

// What of pages a unit has first is on its way, and its heads are there.
template <int kWidth, bool kBf16>
__device__ __forceinline__ void heads_of_unit(const Instruction& in, const Pass& pass, const AttendRowUnit& of,
                                              unsigned char* own, unsigned char* other) {
  using Mma = AttendMma<kWidth, kBf16>;
  const Run& run = pass.run[0];
  Mma mma(in, run, of.unit, of.parts, false, own, other, of.pages[Mma::group()]);
  mma.bring_keys();
  const HeadsOfRow<kWidth, kBf16> heads(in, run, of, mma);
  heads.put();
  meet();
  mma.bring_values();
  if constexpr (Mma::kGroups > 1) {  // the value may be another group's
    heads.put_value();
    meet();
  }
}

// `of`: the block's first, written anew for each. `own`: the instruction's own place in shared memory; `other`: where
// others of the block may still be at what comes before.
template <int kWidth, bool kBf16>
__device__ __forceinline__ void do_attend_row(const Instruction& in, const Pass& pass, AttendRowUnit& of,
                                              unsigned char* own, unsigned char* other) {
  is_shared(&in);
  is_shared(&pass);
  is_shared(&of);
  using Mma = AttendMma<kWidth, kBf16>;
  if (of.there == 0) return meet();  // none is left behind at what comes before
  const Run& run = pass.run[0];
  for (int number = static_cast<int>(blockIdx.x);;) {
    heads_of_unit<kWidth, kBf16>(in, pass, of, own, other);
    Mma mma(in, run, of.unit, of.parts, false, own, other, of.pages[Mma::group()]);
    mma.go_through(AttendRowOut{in, of.unit}, [&] {
      if constexpr (Mma::kGroups == 1) HeadsOfRow<kWidth, kBf16>(in, run, of, mma).put_value();
    });
    number += static_cast<int>(gridDim.x);
    if (number >= in.op.kv_heads * of.parts.count) return;
    meet();  // all have read what the unit was
    if (warp() == 0) of.make(in, pass, number);
    meet();
  }
}

// kAttendJoin behind that: of parts, which are words, too. Units are as in do_attend_join, from the last block on, as
// the first have parts.
__device__ __forceinline__ void join_row(const Instruction& in, const Pass& pass, unsigned char* own) {
  constexpr int kWide = PartsOfColumn::kWide;
  const Op& op = in.op;
  const int count = in.scratch != 0 ? key_parts(op, pass.run[0].start, in.splits).count : 1;
  const int wide = op.width / kWide, units = count == 1 ? 0 : op.heads * wide;
  int number = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  if (number >= units) return meet();
  for (; number < units; number += static_cast<int>(gridDim.x)) {
    const int column = number % wide * kWide + static_cast<int>(threadIdx.x) % kWide, head = number / wide;
    const int values = static_cast<int>(part_values(op));
    const uint32_t* const parts = at<const uint32_t>(in.scratch) + static_cast<int64_t>(head) * in.splits * values;
    PartsOfColumn all;
    const auto until_all = [&](const auto& load) {
      for (bool missing = true; __any_sync(kAll, missing);) {
        missing = false;
        load([&](int i, int k) {
          const uint32_t word = look_at_word(parts + i * values + k);
          missing = missing || !has_come(word);
          return __uint_as_float(word);
        });
        if (missing) looked_in_vain();
      }
    };
    // Few words first: they come last.
    until_all([&](const auto& from) { all.load_facts(op.width, count, from); });
    until_all([&](const auto& from) { all.load_values(op.width, count, column, from); });
    const float value = all.join(reinterpret_cast<float*>(own));
    if (PartsOfColumn::eighth() == 0) store_word(at<uint32_t>(in.out) + head * op.width + column, word_of_value(value));
  }
}

}  // namespace baton::cuda
