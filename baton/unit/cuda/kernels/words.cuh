// Registers as words (Worded): nobody waits for a whole instruction, but each reader for what it reads.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"

namespace baton::cuda {

__device__ __forceinline__ uint32_t word_of_value(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits == kNoWord ? kNoNumberWord : bits;
}
__device__ __forceinline__ bool has_come(uint32_t word) { return word != kNoWord; }

// A value that may be asked for before it has come.
class AskedWord {
 public:
  __device__ __forceinline__ void ask(const uint32_t* from) {
    from_ = from;
    word_ = look_at_word(from);
  }
  __device__ __forceinline__ float take() {
    while (!has_come(word_)) {
      looked_in_vain();
      word_ = look_at_word(from_);
    }
    return __uint_as_float(word_);
  }

 private:
  const uint32_t* from_;
  uint32_t word_;
};

// A row that may be of words, four values by a lane (prologue.cuh): all are asked for at once, then those again that
// had not come.
struct RowOfWords {
  Address from;
  bool worded;

  __device__ __forceinline__ float4 ask(int i, bool there) const {
    uint4 words = make_uint4(0, 0, 0, 0);
    if (there) words = look_at_four_words(at<const uint32_t>(from) + i);
    return make_float4(__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
                       __uint_as_float(words.w));
  }
  __device__ __forceinline__ void take(float4& four, int i, bool there) const {
    if (!worded) return;
    const auto is_missing = [&] {
      return there && !(has_come(__float_as_uint(four.x)) && has_come(__float_as_uint(four.y)) &&
                        has_come(__float_as_uint(four.z)) && has_come(__float_as_uint(four.w)));
    };
    while (__any_sync(kAll, is_missing())) {
      looked_in_vain();
      if (is_missing()) four = ask(i, true);
    }
  }
};

}  // namespace baton::cuda
