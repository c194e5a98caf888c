// Attention of rows that decode: units (attention_parts.cuh) in plain arithmetic, for what attention_mma.cuh does not
// do. Of whole rows in plain f32 see attention_rows.cuh, of prompts attention_tile.cuh.
//
// A lane owns 8 of a head's values; 32 or 16 lanes, a strand, have a key, four keys at a time. What comes from memory
// goes through a ring of 16-byte places that belong to the lane alone, so that nobody waits for anybody. Strands keep
// their own highest score and sums, and are joined in order at the end; so are the parts of a row, in kAttendJoin.
#pragma once

#include "baton/unit/cuda/kernels/attention_mma.cuh"
#include "baton/unit/cuda/kernels/attention_parts.cuh"

namespace baton::cuda {

inline constexpr int kKeysAhead = 4;  // of a strand

// 8 values of 16 bits.
__device__ __forceinline__ void widen8(bool bf16, const uint4& from, float (&to)[8]) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (bf16) {
      to[2 * i] = __uint_as_float(words[i] << 16);
      to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      to[2 * i] = two.x;
      to[2 * i + 1] = two.y;
    }
  }
}

// One for all forms: few steps come here, and each one more is compiled into every kernel that runs lists.
template <int kLanes, int kHeads>
class AttendPart {
 public:
  __device__ AttendPart(const Instruction& in, const Run& run, const AttendUnit& unit, const KeyParts& parts,
                        unsigned char* shared)
      : in_(in), unit_(unit), pages_(at<const Address>(run.pages)), shared_(shared), form_(in.slot.form) {
    const int first_tile = parts.first_tile(unit.part);
    last_tile_ = parts.first_tile(unit.part + 1) - 1;
    base_ = first_tile * kPageTokens;
    seen_from_ = max(parts.seen_from, base_);
    end_ = min(run.start + 1, (last_tile_ + 1) * kPageTokens);
    at_ = static_cast<int>(lane()) % kLanes * 8;
    inside_ = at_ < in.op.width;
    strand_ = static_cast<int>(warp()) * kStrands + static_cast<int>(lane()) / kLanes;
    row_ = run.first_row;
  }

  __device__ void run(bool alone) {
    load_queries();
    page_ = page_of(0);
    bring(0, 0, in_.slot);
    bring(0, kKeysAhead, in_.slot2);
    Address next = page_of(1);
    for (int step = 0; base_ + step * kStepKeys < end_; ++step) {
      copies_wait<1>();
      float scores[kCount];
      multiply_keys(step, scores);
      const Address page = page_;
      page_ = next;
      bring(step + 1, 0, in_.slot);
      next = page_of(step + 2);
      weigh(step, scores);
      copies_wait<1>();
      add_values(step, page, scores[0]);
      bring(step + 1, kKeysAhead, in_.slot2);
    }
    copies_wait<0>();
    join(alone);
  }

 private:
  static constexpr int kStrands = 32 / kLanes;  // of a warp
  static constexpr int kAllStrands = kThreads / kLanes;
  static constexpr int kStepKeys = kAllStrands * kKeysAhead;
  static constexpr int kCount = kKeysAhead * kHeads;            // scores of a strand
  static constexpr int kSpread = kLanes / kCount;               // lanes that have the same one
  static constexpr int kRing = 2 * kKeysAhead * kThreads * 16;  // bytes; later the strands' sums
  static_assert(kCount <= kLanes);

  // First key of the strand in a step.
  __device__ __forceinline__ int key_at(int step) const { return base_ + (step * kAllStrands + strand_) * kKeysAhead; }
  __device__ __forceinline__ Address page_of(int step) const {
    return pages_[min(key_at(step) / kPageTokens, last_tile_)];
  }
  __device__ __forceinline__ bool valid(int key) const { return key >= seen_from_ && key < end_; }
  __device__ __forceinline__ const unsigned char* place_of(Address page, const Place& place, int key) const {
    const int64_t row = static_cast<int64_t>(unit_.kv_head) * kPageTokens + key % kPageTokens;
    return at<const unsigned char>(page + place.offset) + row * place.row_bytes + at_ * (form_ == Form::kF32 ? 4 : 2);
  }

  // Keys or values of a step, to their half of the ring.
  __device__ __forceinline__ void bring(int step, int slot, const Place& place) const {
    if (form_ != Form::kF32) {
#pragma unroll
      for (int j = 0; j < kKeysAhead; ++j) {
        const int key = key_at(step) + j;
        const bool wanted = inside_ && valid(key);
        const unsigned char* const from = wanted ? place_of(page_, place, key) : at<const unsigned char>(page_);
        copy_ahead(shared_address(shared_ + ((slot + j) * kThreads + threadIdx.x) * 16), from, wanted);
      }
    }
    copies_end_group();
  }
  __device__ __forceinline__ void take(int step, int slot, int j, Address page, const Place& place,
                                       float (&to)[8]) const {
    if (form_ == Form::kF32) {
      const int key = key_at(step) + j;
      const bool wanted = inside_ && valid(key);
      load8(reinterpret_cast<const float*>(place_of(page, place, key)), wanted ? in_.op.width - at_ : 0, to);
    } else {
      widen8(form_ == Form::kBF16,
             *reinterpret_cast<const uint4*>(shared_ + ((slot + j) * kThreads + threadIdx.x) * 16), to);
    }
  }

  __device__ __forceinline__ void load_queries() {
    const float* const row = row_of(in_.x, in_.x_width, row_);
#pragma unroll
    for (int g = 0; g < kHeads; ++g) {
      const bool wanted = inside_ && g < unit_.heads;
      load8(row + (unit_.head + g) * in_.op.width + at_, wanted ? in_.op.width - at_ : 0, q_[g]);
#pragma unroll
      for (int i = 0; i < 8; ++i) out_[g][i] = 0;
    }
  }

  // scores[0]: of key number() / kHeads and head number() % kHeads, summed over the strand's lanes.
  __device__ __forceinline__ void multiply_keys(int step, float (&scores)[kCount]) const {
#pragma unroll
    for (int j = 0; j < kKeysAhead; ++j) {
      float key[8];
      take(step, 0, j, page_, in_.slot, key);
#pragma unroll
      for (int g = 0; g < kHeads; ++g) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = fmaf(q_[g][i], key[i], sum);
        scores[j * kHeads + g] = sum;
      }
    }
#pragma unroll
    for (int n = kCount / 2, o = kLanes / 2; n > 0; n /= 2, o /= 2) {
      const bool upper = (lane() & o) != 0;
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float mine = upper ? scores[i + n] : scores[i];
        const float other = upper ? scores[i] : scores[i + n];
        scores[i] = mine + __shfl_xor_sync(kAll, other, o);
      }
    }
#pragma unroll
    for (int o = kSpread / 2; o > 0; o /= 2) scores[0] += __shfl_xor_sync(kAll, scores[0], o);
  }
  __device__ __forceinline__ int number() const { return static_cast<int>(lane()) % kLanes / kSpread; }

  // scores[0] becomes what its key's values count for.
  __device__ __forceinline__ void weigh(int step, float (&scores)[kCount]) {
    const bool seen = valid(key_at(step) + number() / kHeads);
    const float score = seen ? capped(scores[0] * in_.op.scale, in_.op.cap) : no_score();
    float highest = score;
#pragma unroll
    for (int o = kSpread * kHeads; o < kLanes; o *= 2) highest = fmaxf(highest, __shfl_xor_sync(kAll, highest, o));
    highest = fmaxf(highest, highest_);
    const float weight = seen ? expf(score - highest) : 0.0f;
    const bool moved = highest != highest_;
    const float kept = moved ? expf(highest_ - highest) : 1.0f;
    sum_ = fmaf(sum_, kept, weight);
    highest_ = highest;
    if (__any_sync(kAll, moved)) {
#pragma unroll
      for (int g = 0; g < kHeads; ++g) {
        const float factor = __shfl_sync(kAll, kept, g * kSpread, kLanes);
#pragma unroll
        for (int i = 0; i < 8; ++i) out_[g][i] *= factor;
      }
    }
    scores[0] = weight;
  }

  __device__ __forceinline__ void add_values(int step, Address page, float weight) {
#pragma unroll
    for (int j = 0; j < kKeysAhead; ++j) {
      float value[8];
      take(step, kKeysAhead, j, page, in_.slot2, value);
#pragma unroll
      for (int g = 0; g < kHeads; ++g) {
        const float factor = __shfl_sync(kAll, weight, (j * kHeads + g) * kSpread, kLanes);
#pragma unroll
        for (int i = 0; i < 8; ++i) out_[g][i] = fmaf(factor, value[i], out_[g][i]);
      }
    }
  }

  // All strands' sums become those of the part.
  __device__ __forceinline__ void join(bool alone) {
    const int width = in_.op.width, wide = (width + 7) / 8 * 8;
    auto* const sums = reinterpret_cast<float*>(shared_);  // [strands][heads][wide]
    auto* const stats = reinterpret_cast<float*>(shared_ + kRing);
    float* const highest = stats;                      // [heads][strands], then factors
    float* const sum = stats + kHeads * kAllStrands;   // [heads][strands]
    float* const joined = sum + kHeads * kAllStrands;  // [heads][2]: highest and sum
#pragma unroll
    for (int o = kSpread * kHeads; o < kLanes; o *= 2) sum_ += __shfl_xor_sync(kAll, sum_, o);
    if (static_cast<int>(lane()) % kLanes % kSpread == 0 && number() < kHeads) {
      highest[number() * kAllStrands + strand_] = highest_;
      sum[number() * kAllStrands + strand_] = sum_;
    }
    meet();
    if (warp() < kHeads) {
      const int of = static_cast<int>(warp()) * kAllStrands + static_cast<int>(lane());
      const bool one = static_cast<int>(lane()) < kAllStrands;
      const float own = one ? highest[of] : no_score();
      const float all = warp_max(own);
      const float factor = one ? (own == all ? 1.0f : expf(own - all)) : 0.0f;
      const float total = warp_sum(one ? factor * sum[of] : 0.0f);
      if (one) highest[of] = factor;
      if (lane() == 0) joined[warp() * 2] = all, joined[warp() * 2 + 1] = total;
    }
    meet();
#pragma unroll
    for (int g = 0; g < kHeads; ++g) {
      const float factor = highest[g * kAllStrands + strand_];
      float* const to = sums + (strand_ * kHeads + g) * wide + at_;
      if (!inside_) continue;
      *reinterpret_cast<float4*>(to) =
          make_float4(out_[g][0] * factor, out_[g][1] * factor, out_[g][2] * factor, out_[g][3] * factor);
      *reinterpret_cast<float4*>(to + 4) =
          make_float4(out_[g][4] * factor, out_[g][5] * factor, out_[g][6] * factor, out_[g][7] * factor);
    }
    meet();
    for (int i = static_cast<int>(threadIdx.x); i < unit_.heads * width; i += kThreads) {
      float total = 0;
      for (int s = 0; s < kAllStrands; ++s) total += sums[(s * kHeads + i / width) * wide + i % width];
      write(i / width, i % width, total, joined, alone);
    }
    meet();
  }

  __device__ __forceinline__ void write(int g, int i, float total, const float* joined, bool alone) const {
    const Op& op = in_.op;
    if (alone) {
      row_of(in_.out, in_.out_width, row_)[(unit_.head + g) * op.width + i] = total / joined[2 * g + 1];
      return;
    }
    const int64_t part = (static_cast<int64_t>(unit_.run) * op.heads + unit_.head + g) * in_.splits + unit_.part;
    float* const to = at<float>(in_.scratch) + part * part_values(op);
    to[i] = total;
    if (i == 0) to[op.width] = joined[2 * g], to[op.width + 1] = joined[2 * g + 1];
  }

  const Instruction& in_;
  const AttendUnit unit_;
  const Address* const pages_;
  unsigned char* const shared_;
  const Form form_;
  int last_tile_, base_, seen_from_, end_, at_, strand_, row_;
  bool inside_;
  Address page_ = 0;
  float q_[kHeads][8], out_[kHeads][8];
  float highest_ = no_score(), sum_ = 0;  // of head number() % kHeads; the sum of this lane's keys
};

// part(run, unit, parts) for each of the block's units: the first parts of all, then the second.
template <class Part>
__device__ __forceinline__ void each_attend_unit(const Instruction& in, const Pass& pass, uint32_t block,
                                                 uint32_t blocks, Part part) {
  const Op& op = in.op;
  const int splits = in.scratch != 0 ? in.splits : 1;
  const int each = pass.runs * op.kv_heads * head_parts(op), parts_end = splits > 1 ? most_parts(op, pass, splits) : 1;
  int number = static_cast<int>(block);
  for (int of = 0; of < parts_end; ++of, number -= each) {
    for (; number < each; number += static_cast<int>(blocks)) {
      const AttendUnit unit = attend_unit(op, number, of);
      const Run& run = pass.run[unit.run];
      if (run.decodes == 0 || run.rows == 0) continue;
      const KeyParts parts = key_parts(op, run.start, splits);
      if (unit.part < parts.count) part(run, unit, parts);
    }
  }
}

template <int kLanes, int kHeads>
__device__ __noinline__ void attend_units(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                          unsigned char* shared) {
  each_attend_unit(in, pass, block, blocks, [&](const Run& run, const AttendUnit& unit, const KeyParts& parts) {
    AttendPart<kLanes, kHeads>(in, run, unit, parts, shared).run(parts.count == 1);
  });
}
// What comes out of a unit, as values.
struct AttendOut {
  const Instruction& in;
  const Run& run;
  const AttendUnit& unit;
  __device__ __forceinline__ void whole(int i, float value) const {
    row_of(in.out, in.out_width, run.first_row)[unit.head * in.op.width + i] = value;
  }
  __device__ __forceinline__ void part(int head, int i, float value) const {
    at<float>(in.scratch)[part_at(in, unit, head) + i] = value;
  }
};
template <int kWidth, bool kBf16>
__device__ __noinline__ void attend_mma_units(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                              unsigned char* shared) {
  each_attend_unit(in, pass, block, blocks, [&](const Run& run, const AttendUnit& unit, const KeyParts& parts) {
    AttendMma<kWidth, kBf16> mma(in, run, unit, parts, true, shared, shared + kAttendShared / 2);
    mma.bring_keys();
    mma.bring_values();
    mma.put_queries();
    meet();
    mma.go_through(AttendOut{in, run, unit}, [] {});
  });
}

template <bool kBf16>
__device__ __forceinline__ void attend_mma(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                           unsigned char* shared) {
  if (in.op.width == 256) return attend_mma_units<256, kBf16>(in, pass, block, blocks, shared);
  if (in.op.width == 128) return attend_mma_units<128, kBf16>(in, pass, block, blocks, shared);
  attend_mma_units<64, kBf16>(in, pass, block, blocks, shared);
}

// A function of its own: in the kernel that runs lists all registers are then its. kAny: also what attends_by_mma says
// no to.
template <bool kAny>
__device__ __noinline__ void do_attend(const Instruction& in, const Pass& pass, uint32_t block, uint32_t blocks,
                                       unsigned char* shared) {
  static_assert(kAttendWidthMax == 32 * 8);
  if (!kAny || attends_by_mma(in)) {
    if (in.slot.form == Form::kBF16) return attend_mma<true>(in, pass, block, blocks, shared);
    return attend_mma<false>(in, pass, block, blocks, shared);
  }
  if constexpr (kAny) {
    if (in.op.width > 128) return attend_units<32, kHeadsTogether>(in, pass, block, blocks, shared);
    if (in.op.heads == in.op.kv_heads) return attend_units<16, 1>(in, pass, block, blocks, shared);
    attend_units<16, kHeadsTogether>(in, pass, block, blocks, shared);
  }
}

}  // namespace baton::cuda
