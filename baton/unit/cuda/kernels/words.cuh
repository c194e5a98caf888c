// Registers as words (Worded): nobody waits for a whole instruction, but each reader for what it reads.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"

namespace baton::cuda {

__device__ __forceinline__ uint64_t word_of_value(float value, uint32_t launch) {
  return static_cast<uint64_t>(launch) << 32 | __float_as_uint(value);
}
__device__ __forceinline__ float value_of_word(uint64_t word) { return __uint_as_float(static_cast<uint32_t>(word)); }
__device__ __forceinline__ bool has_come(uint64_t word, uint32_t launch) {
  return static_cast<uint32_t>(word >> 32) == launch;
}

// A value that may be asked for before it has come.
class AskedWord {
 public:
  __device__ __forceinline__ void ask(const uint64_t* from) {
    from_ = from;
    word_ = look_at_word(from);
  }
  __device__ __forceinline__ float take(uint32_t launch) {
    while (!has_come(word_, launch)) {
      looked_in_vain();
      word_ = look_at_word(from_);
    }
    return value_of_word(word_);
  }

 private:
  const uint64_t* from_;
  uint64_t word_;
};

// Four of them, by each lane of a warp that is `there`; the others have zeros. All look once, as often they have come;
// else one lane looks at its own until they come, and then all do: many that look load the second level of cache more
// than what they wait for.
__device__ __forceinline__ float4 four_of_words(const uint64_t* from, bool there, uint32_t launch) {
  uint64_t words[4] = {};
  const auto look = [&] {
    look_at_words(from, words[0], words[1]);
    look_at_words(from + 2, words[2], words[3]);
    return has_come(words[0], launch) && has_come(words[1], launch) && has_come(words[2], launch) &&
           has_come(words[3], launch);
  };
  bool missing = there && !look();
  while (__any_sync(kAll, missing)) {
    if (lane() == 0) looked_in_vain();
    if (missing && lane() == (blockIdx.x & 31)) {
      while (look_at_words(from, words[0], words[1]), !has_come(words[0], launch)) looked_in_vain();
    }
    __syncwarp();
    if (missing) missing = !look();
  }
  return make_float4(value_of_word(words[0]), value_of_word(words[1]), value_of_word(words[2]),
                     value_of_word(words[3]));
}

}  // namespace baton::cuda
