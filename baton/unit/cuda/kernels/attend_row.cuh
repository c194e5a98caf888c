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

// What warps of a unit do before they attend: the first ones have a query head each, the next two have the row's key
// and value, where the unit has the last part, and the last ones have the gates, where it has the first. What there is
// to be read but words is asked for before keys, and words behind them. Key and value go to the page and, where that is
// on its way to shared memory without them, there. They are no numbers where a type keeps nothing of either.
template <int kWidth, bool kBf16>
class HeadsOfRow {
 public:
  using Mma = AttendMma<kWidth, kBf16>;

  __device__ __forceinline__ HeadsOfRow(const Instruction& in, const Run& run, const AttendUnit& unit, bool last)
      : in_(in), unit_(unit), row_(run.start % kPageTokens) {
    const int own = static_cast<int>(warp());
    has_ = own < unit.heads                    ? kQuery
           : own < kHeadsTogether              ? kNoQuery
           : last && own == kHeadsTogether     ? kKey
           : last && own == kHeadsTogether + 1 ? kValue
                                               : kNone;
    if (has_ == kKey || has_ == kValue) page_ = at<const Address>(run.pages)[run.start / kPageTokens];
    if (has_ == kQuery || has_ == kKey)
      by_ = heads::PlainTurn(kWidth, at<const float>(in.vectors[has_ == kKey ? 1 : 0]), in.op.eps,
                             heads::turn_of(in, in.rope, 0, run.start));
  }

  __device__ __forceinline__ void put(const Mma& mma, bool first) {
    const int own = static_cast<int>(warp()), of_key = unit_.kv_head * kWidth;
    if (has_ == kNone) {
      if (first && in_.out2 != 0 && own >= kWarps / 2) hand_gates_on<kWidth>(in_, unit_);
    } else if (has_ == kNoQuery) {
      put_query(mma);
    } else {
      const int stride = in_.x_stride != 0 ? in_.x_stride : kWidth;
      const HeadOfWords words(has_ == kQuery ? in_.x
                              : has_ == kKey ? in_.y
                                             : in_.z,
                              has_ == kQuery ? (unit_.head + own) * stride : of_key, kWidth);
      while (__any_sync(kAll, !words.look(v_))) looked_in_vain();
      if (has_ != kValue) by_.apply(v_);
      if (has_ == kQuery) put_query(mma);
      if (has_ == kKey) put_key(mma);
    }
    __syncwarp();
  }
  // Behind a meeting.
  __device__ __forceinline__ void put_value(const Mma& mma) {
    if (has_ == kValue) {
      const bool lost = is_lost() || mma.lost_key();
      each([&](int i, float value) {
        if (lost) value = rows::no_number();
        heads::put_value(kForm, place(in_.slot2), i, value);
        if (mma.holds_own()) heads::put_value(kForm, mma.own_value(i), 0, value);
      });
    }
    if constexpr (Mma::kGroups > 1) meet();  // it may be another group's
  }

 private:
  static constexpr Form kForm = kBf16 ? Form::kBF16 : Form::kF16;
  enum Has : uint8_t { kNone, kQuery, kNoQuery, kKey, kValue };

  template <class What>
  __device__ __forceinline__ void each(const What& what) const {
#pragma unroll
    for (int k = 0; k < kWidth / 32; ++k) what(static_cast<int>(lane()) + 32 * k, v_[k]);
  }
  __device__ __forceinline__ bool is_lost() const {
    uint32_t largest = 0;
    each([&](int, float value) { largest = max(largest, __float_as_uint(value) & 0x7fffffffu); });
    return heads::is_lost(kForm, __reduce_max_sync(kAll, largest));
  }
  __device__ __forceinline__ unsigned char* place(const Place& of) const {
    return at<unsigned char>(page_ + of.offset) +
           static_cast<uint32_t>((unit_.kv_head * kPageTokens + row_) * Mma::kRowBytes);
  }
  __device__ __forceinline__ void put_query(const Mma& mma) const {
    each([&](int i, float value) { mma.put_query(static_cast<int>(warp()), i, value); });
  }
  __device__ __forceinline__ void put_key(const Mma& mma) const {
    const bool lost = is_lost();
    if (lane() == 0) mma.lost_key() = lost;
    each([&](int i, float value) {
      heads::put_value(kForm, place(in_.slot), i, value);
      if (mma.holds_own()) heads::put_value(kForm, mma.own_key(i), 0, value);
    });
  }

  const Instruction& in_;
  const AttendUnit& unit_;
  const int row_;
  Has has_;
  Address page_ = 0;
  heads::PlainTurn by_;
  float v_[heads::kOfLane] = {};
};

// `own`: the instruction's own place in shared memory; `other`: where others of the block may still be at what comes
// before.
template <int kWidth, bool kBf16>
__device__ __noinline__ void attend_row_units(const Instruction& in, const Pass& pass, unsigned char* own,
                                              unsigned char* other) {
  is_shared(&in);
  is_shared(&pass);
  const Run& run = pass.run[0];
  const KeyParts parts = key_parts(in.op, run.start, in.scratch != 0 ? in.splits : 1);
  const int each = in.op.kv_heads, units = each * parts.count;
  int number = static_cast<int>(blockIdx.x);
  if (number >= units) return meet();  // none is left behind at what comes before
  const int shared_by = in.op.heads / each;
  for (; number < units; number += static_cast<int>(gridDim.x)) {
    const int part = number / each, kv_head = number - part * each;
    const AttendUnit unit = {0, kv_head, kv_head * shared_by, shared_by, part};
    AttendMma<kWidth, kBf16> mma(in, run, unit, parts, false, own, other);
    HeadsOfRow<kWidth, kBf16> heads(in, run, unit, part + 1 == parts.count);
    mma.bring_keys();
    heads.put(mma, part == 0);
    meet();
    mma.bring_values();
    heads.put_value(mma);
    mma.go_through(AttendRowOut{in, unit});
  }
}

__device__ __forceinline__ void do_attend_row(const Instruction& in, const Pass& pass, unsigned char* own,
                                              unsigned char* other) {
  const bool bf16 = in.slot.form == Form::kBF16;
  if (in.op.width == 256)
    return bf16 ? attend_row_units<256, true>(in, pass, own, other)
                : attend_row_units<256, false>(in, pass, own, other);
  if (in.op.width == 128)
    return bf16 ? attend_row_units<128, true>(in, pass, own, other)
                : attend_row_units<128, false>(in, pass, own, other);
  return bf16 ? attend_row_units<64, true>(in, pass, own, other) : attend_row_units<64, false>(in, pass, own, other);
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
