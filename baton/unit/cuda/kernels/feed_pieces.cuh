// Pieces of weights in a slot of shared memory: how they are asked for, and how a lane finds its part (feed.cuh).
#pragma once

#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"

namespace baton::cuda {

// Index of a group's scale and of its part, in a matrix's arrays.
__device__ __forceinline__ int64_t scale_index(const Matrix& matrix, int64_t row, int group) {
  return row * (matrix.pitch >> matrix.block_log2) + (32 * group >> matrix.block_log2);
}
__device__ __forceinline__ int64_t part_index(const Matrix& matrix, int64_t row, int group) {
  return row * (matrix.pitch >> matrix.part_log2) + (32 * group >> matrix.part_log2);
}

// The words in which a lane finds the scales of its group: d, m or the second d, parts. Words are aligned, so that
// what is wanted may be their upper half.
__device__ __forceinline__ void ask_scales(const Matrix& matrix, int64_t row, int group, uint32_t to, Policy policy) {
  const int64_t index = scale_index(matrix, row, group);
  const bool wide = matrix.scale_form == Form::kF32;
  const auto word = [&](Address array, int64_t byte) { return at<const uint32_t>((array + byte) & ~Address{3}); };
  const int64_t byte = index * (wide ? 4 : 2);
  copy_word_ahead(to, word(matrix.scales, byte), policy);
  if (matrix.minimums != 0) copy_word_ahead(to + 128, word(matrix.minimums, byte), policy);
  if (wide && matrix.block_log2 == 4) copy_word_ahead(to + 128, word(matrix.scales, byte + 4), policy);
  if (matrix.parts != 0)
    copy_word_ahead(to + 256, word(matrix.parts, part_index(matrix, row, group) * (matrix.minimums != 0 ? 2 : 1)),
                    policy);
}

// A lane's part of a piece of `columns` columns from the first on. Where it lies: take_raw, take_scales, and
// products.cuh of dense ones.
__device__ __forceinline__ void ask(const Matrix& matrix, int64_t row, int first, int columns, uint32_t slot,
                                    Policy policy) {
  const unsigned char* const from = at<const unsigned char>(matrix.values) + row * matrix.row_bytes;
  const uint32_t own = lane();
  if (matrix.form != Form::kCodes) {
    // 16 bytes are 4 or 8 values.
    const int values_log2 = matrix.form == Form::kF32 ? 2 : 3, chunks = columns >> (5 + values_log2);
    const int own_first = first + (static_cast<int>(own) << values_log2), step = 32 << values_log2;
    const unsigned char* const own_from = from + (int64_t{own_first} << (4 - values_log2));
#pragma unroll 4
    for (int c = 0; c < chunks; ++c) {
      if (own_first + c * step < matrix.pitch)
        copy_ahead(slot + (static_cast<uint32_t>(c) * 32 + own) * 16, own_from + c * 512, policy);
    }
    return;
  }
  const int group = first / kGroup + static_cast<int>(own), groups = matrix.pitch / kGroup, bits = matrix.bits;
  if (group < groups && static_cast<int>(own) * kGroup < columns) {
    const unsigned char* plane = from;
    uint32_t to = slot;
    if (bits == 8) {
      copy_ahead(to + own * 16, plane + 32 * group, policy);
      copy_ahead(to + 512 + own * 16, plane + 32 * group + 16, policy);
    } else {
      if ((bits & 4) != 0) {
        copy_ahead(to + own * 16, plane + 16 * group, policy);
        plane += 16 * groups, to += 512;
      }
      if ((bits & 2) != 0) {
        copy_two_words_ahead(to + own * 8, plane + 8 * group, policy);
        plane += 8 * groups, to += 256;
      }
      if ((bits & 1) != 0) copy_word_ahead(to + own * 4, plane + 4 * group, policy);
    }
    ask_scales(matrix, row, group, slot + static_cast<uint32_t>(bits) * 128 + own * 4, policy);
  }
}

template <int kBits>
__device__ __forceinline__ Raw<kBits> take_raw(const unsigned char* slot, bool bulk) {
  Raw<kBits> raw;
  const uint32_t own = lane();
  if constexpr (kBits == 8) {
    if (bulk) {
      load_words<4, Reading::kCached>(slot + own * 32, raw.words);
      load_words<4, Reading::kCached>(slot + own * 32 + 16, raw.words + 4);
      return raw;
    }
    load_words<4, Reading::kCached>(slot + own * 16, raw.words);
    load_words<4, Reading::kCached>(slot + 512 + own * 16, raw.words + 4);
    return raw;
  }
  constexpr bool kFour = (kBits & 4) != 0, kTwo = (kBits & 2) != 0, kOne = (kBits & 1) != 0;
  constexpr int kTwosAt = kFour ? 4 : 0, kOnesAt = kTwosAt + (kTwo ? 2 : 0);
  if constexpr (kFour) load_words<4, Reading::kCached>(slot + own * 16, raw.words);
  if constexpr (kTwo) load_words<2, Reading::kCached>(slot + 128 * kTwosAt + own * 8, raw.words + kTwosAt);
  if constexpr (kOne) load_words<1, Reading::kCached>(slot + 128 * kOnesAt + own * 4, raw.words + kOnesAt);
  return raw;
}

// The words of a lane's scales: of what ask_scales brought, or bring_codes. `index`: that of the lane's in the array of
// scales; `byte` in that of parts.
struct ScaleWords {
  uint32_t d, more, parts;

  __device__ __forceinline__ ScaleWords(const unsigned char* at)
      : ScaleWords(reinterpret_cast<const uint32_t*>(at) + lane(), 0) {}
  __device__ __forceinline__ ScaleWords(const Matrix& matrix, int64_t index, int64_t byte, int64_t first_index,
                                        int64_t first_byte, const unsigned char* at) {
    const bool wide = matrix.scale_form == Form::kF32;
    const int size = wide ? 4 : 2;
    // A word that begins where the array's would.
    const auto word = [](const unsigned char* from, Address array, int64_t begin, int64_t own) {
      const auto offset = static_cast<uint32_t>(((array + begin) & 15) + static_cast<Address>(own - begin));
      return *reinterpret_cast<const uint32_t*>(from + (offset & ~3u));
    };
    d = word(at, matrix.scales, first_index * size, index * size);
    more = matrix.minimums != 0             ? word(at + 128, matrix.minimums, first_index * size, index * size)
           : wide && matrix.block_log2 == 4 ? word(at, matrix.scales, first_index * size, (index + 1) * size)
                                            : 0;
    parts = matrix.parts != 0 ? word(at + 256, matrix.parts, first_byte, byte) : 0;
  }

 private:
  __device__ __forceinline__ ScaleWords(const uint32_t* words, int) : d(words[0]), more(words[32]), parts(words[64]) {}
};

// As scales_of, of what the slot has.
__device__ __forceinline__ Scales take_scales(const Matrix& matrix, int64_t row, int group, const unsigned char* slot,
                                              bool bulk) {
  const int64_t index = scale_index(matrix, row, group);
  const bool halves = matrix.block_log2 == 4, minimums = matrix.minimums != 0;
  const int64_t byte = part_index(matrix, row, group) * (minimums ? 2 : 1);
  const unsigned char* const at = slot + matrix.bits * 128;
  const int first = group - static_cast<int>(lane());
  const ScaleWords words = bulk ? ScaleWords(matrix, index, byte, scale_index(matrix, row, first),
                                             part_index(matrix, row, first) * (minimums ? 2 : 1), at)
                                : ScaleWords(at);
  const auto one = [&](uint32_t word, int64_t of) {
    if (matrix.scale_form == Form::kF32) return __uint_as_float(word);
    const uint32_t bits = (of & 1) != 0 ? word >> 16 : word & 0xffffu;
    return matrix.scale_form == Form::kF16 ? float_of_f16(static_cast<uint16_t>(bits)) : float_of_bf16(bits);
  };
  Scales made;
  made.d[0] = made.d[1] = matrix.unit * one(words.d, index);
  if (halves) made.d[1] = matrix.unit * one(matrix.scale_form == Form::kF32 ? words.more : words.d, index + 1);
  made.m[0] = made.m[1] = minimums ? matrix.unit * one(words.more, index) : 0.0f;
  if (matrix.parts == 0) return made;
  const uint32_t parts = words.parts >> (8 * (byte & 3));
  const bool two = matrix.part_log2 == 4;
  if (minimums) {
    made.d[0] *= float_of_unsigned_byte<0>(parts), made.m[0] *= float_of_unsigned_byte<1>(parts);
    made.d[1] *= two ? float_of_unsigned_byte<2>(parts) : float_of_unsigned_byte<0>(parts);
    made.m[1] *= two ? float_of_unsigned_byte<3>(parts) : float_of_unsigned_byte<1>(parts);
  } else {
    made.d[0] *= float_of_byte<0>(parts);
    made.d[1] *= two ? float_of_byte<1>(parts) : float_of_byte<0>(parts);
  }
  return made;
}

// Whether a matrix's pieces come in bulk. Codes do where all that a piece is of begins at multiples of 16 bytes but for
// scales of long blocks; those are in the 16 bytes around them.
__device__ __forceinline__ bool comes_in_bulk(const Matrix& matrix) {
  return kCopiesInBulk && (matrix.form != Form::kCodes || matrix.pitch % 128 == 0);
}

// Part of a piece: `bytes` of an array from byte `at` on, with what lies around them in multiples of 16.
struct BulkPart {
  const unsigned char* from;
  uint32_t bytes;

  __device__ __forceinline__ BulkPart(Address array, int64_t at, uint32_t count) {
    const Address begin = (array + at) & ~Address{15};
    from = cuda::at<const unsigned char>(begin);
    bytes = static_cast<uint32_t>(((array + at + count + 15) & ~Address{15}) - begin);
  }
};

// A piece of codes by one lane: its planes one behind the other, then 128 bytes each for d, m (or more of d) and parts.
__device__ __forceinline__ void bring_codes(const Matrix& matrix, int64_t row, int column, int wide, uint32_t to,
                                            uint32_t full, Policy policy) {
  const int group = column / kGroup, groups = min(wide, matrix.pitch - column) / kGroup, bits = matrix.bits;
  const int size = matrix.scale_form == Form::kF32 ? 4 : 2, each = matrix.minimums != 0 ? 2 : 1;
  const int64_t scale = scale_index(matrix, row, group), part = part_index(matrix, row, group) * each;
  const auto scales =
      static_cast<uint32_t>(scale_index(matrix, row, group + groups - 1) - scale) + (matrix.block_log2 == 4 ? 2 : 1);
  const auto parts = static_cast<uint32_t>(part_index(matrix, row, group + groups - 1) * each - part) +
                     static_cast<uint32_t>(matrix.part_log2 == 4 ? 2 * each : each);
  const BulkPart d(matrix.scales, scale * size, scales * static_cast<uint32_t>(size));
  const BulkPart m(matrix.minimums, scale * size, scales * static_cast<uint32_t>(size));
  const BulkPart s(matrix.parts, part, parts);
  const auto all = static_cast<uint32_t>(groups * bits * 4);
  arrive_with_bulk(full, all + d.bytes + (matrix.minimums != 0 ? m.bytes : 0) + (matrix.parts != 0 ? s.bytes : 0));
  const unsigned char* plane = at<const unsigned char>(matrix.values) + row * matrix.row_bytes;
  uint32_t place = to;
  for (int plane_bits = 8; plane_bits > 0; plane_bits /= 2) {
    if ((bits & plane_bits) == 0) continue;
    copy_in_bulk(place, plane + 4 * plane_bits * group, static_cast<uint32_t>(4 * plane_bits * groups), full, policy);
    plane += 4 * plane_bits * (matrix.pitch / kGroup);
    place += static_cast<uint32_t>(128 * plane_bits);
  }
  place = to + static_cast<uint32_t>(128 * bits);
  copy_in_bulk(place, d.from, d.bytes, full, policy);
  if (matrix.minimums != 0) copy_in_bulk(place + 128, m.from, m.bytes, full, policy);
  if (matrix.parts != 0) copy_in_bulk(place + 256, s.from, s.bytes, full, policy);
}

}  // namespace baton::cuda
