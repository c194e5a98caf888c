// The values of a Matrix (instruction.h), for kernels and for the bodies that stand for them on the host.
//
// A group is 32 codes of a row. `Raw` is what its planes hold, `Group` the same as 32 numbers q of 8 bits with a sign,
// four to a word in their order; of a table they are its values. Then value = d * (q - zero) - m, where d and m are of
// each half of a group, the matrix's unit and what parts count for included (`Scales`). Codes of 8 bits are stored with
// a sign (128 less, and so is their zero); tables have no zero. A product of q with integers so needs one subtraction
// for each group: zero times the sum of these.
//
// On the host values have the bits of Format::decode, but where pack.h says otherwise; on the card products and sums
// are fused, and so within half a unit in the last place of the larger term.
#pragma once

#include <cstdint>
#include <cstring>

#include "baton/unit/cuda/instruction.h"
#include "baton/unit/cuda/planes.h"
#include "baton/unit/cuda/strips.h"

namespace baton::cuda {

// Of a group's halves: value = d * (q - zero) - m.
struct Scales {
  float d[2], m[2];
};

BATON_INLINE float scale_at(const unsigned char* scales, Form form, int32_t index) {
  if (form == Form::kF32) return reinterpret_cast<const float*>(scales)[index];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(scales)[index];
  return form == Form::kF16 ? float_of_f16(bits) : float_of_bf16(bits);
}

// Of a group of a strip of `groups`, whose scales lie at `scales`. Branches are those of the matrix: the same for all
// threads that work on it.
BATON_INLINE Scales scales_of(const Matrix& matrix, const unsigned char* scales, int32_t groups, int32_t group) {
  const ScalePlaces places = scale_places(matrix, groups);
  const int32_t block = kGroup * group >> matrix.block_log2;
  Scales made;
  made.d[0] = made.d[1] = matrix.unit * scale_at(scales, matrix.scale_form, block);
  if (matrix.block_log2 == 4) made.d[1] = matrix.unit * scale_at(scales, matrix.scale_form, block + 1);
  made.m[0] = made.m[1] =
      matrix.has_minimums ? matrix.unit * scale_at(scales + places.minimums, matrix.scale_form, block) : 0.0f;
  if (matrix.part_log2 == 0) return made;
  const int32_t part = kGroup * group >> matrix.part_log2;
  const bool two = matrix.part_log2 == 4;
  if (matrix.has_minimums) {
    const unsigned char* const pairs = scales + places.parts + 2 * part;
    const uint32_t word =
        two ? *reinterpret_cast<const uint32_t*>(pairs) : *reinterpret_cast<const uint16_t*>(pairs) * 0x10001u;
    made.d[0] *= float_of_unsigned_byte<0>(word), made.m[0] *= float_of_unsigned_byte<1>(word);
    made.d[1] *= float_of_unsigned_byte<2>(word), made.m[1] *= float_of_unsigned_byte<3>(word);
  } else {
    const unsigned char* const bytes = scales + places.parts + part;
    const uint32_t word = two ? *reinterpret_cast<const uint16_t*>(bytes) : *bytes * 0x101u;
    made.d[0] *= float_of_byte<0>(word), made.d[1] *= float_of_byte<1>(word);
  }
  return made;
}

BATON_INLINE const unsigned char* row_at(const Matrix& matrix, int64_t row) {
  return reinterpret_cast<const unsigned char*>(matrix.values) + row * matrix.row_bytes;
}

// Of a row of codes, which lies at `row`: what it has of a group.
template <int kBits, Reading kReading = Reading::kCached>
BATON_INLINE Raw<kBits> raw_in_row(const Matrix& matrix, const unsigned char* row, int32_t group) {
  const StripGroup of(matrix.pitch, group);
  return load_raw<kBits, kReading>(row + of.strip * matrix.strip_bytes, of.groups, of.group);
}
BATON_INLINE Scales scales_in_row(const Matrix& matrix, const unsigned char* row, int32_t group) {
  const StripGroup of(matrix.pitch, group);
  return scales_of(matrix, row + of.strip * matrix.strip_bytes + planes_bytes(matrix.bits, of.groups), of.groups,
                   of.group);
}

// q of a group of a matrix of kBits.
template <int kBits, Reading kReading = Reading::kCached>
BATON_INLINE Group<kBits> group_of(const Matrix& matrix, const Lookup& table, int64_t row, int32_t group) {
  const Raw<kBits> raw = raw_in_row<kBits, kReading>(matrix, row_at(matrix, row), group);
  if constexpr (kBits <= 4) {
    if (matrix.has_table) return look_up(raw, table);
  }
  return take_apart(raw);
}

// 32 values.
template <int kBits>
BATON_INLINE void values_of_group(const Group<kBits>& group, const Scales& scales, float zero, float* to) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < 8; ++i) {
    const uint32_t word = group.words[i];
    const float d = scales.d[i / 4], m = scales.m[i / 4];
    to[4 * i] = d * float_of_byte<0>(word, zero) - m;
    to[4 * i + 1] = d * float_of_byte<1>(word, zero) - m;
    to[4 * i + 2] = d * float_of_byte<2>(word, zero) - m;
    to[4 * i + 3] = d * float_of_byte<3>(word, zero) - m;
  }
}

// 32 values of a dense row, those of `group`.
template <Reading kReading = Reading::kCached>
BATON_INLINE void dense32(const Matrix& matrix, int64_t row, int32_t group, float* to) {
  const unsigned char* const from = row_at(matrix, row);
  if (matrix.form == Form::kF32) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = 0; i < 32; i += 4) {
      uint32_t words[4];
      load_words<4, kReading>(from + 128 * group + 4 * i, words);
#ifdef __CUDA_ARCH__
      for (int j = 0; j < 4; ++j) to[i + j] = __uint_as_float(words[j]);
#else
      std::memcpy(to + i, words, sizeof(words));
#endif
    }
    return;
  }
  const bool half = matrix.form == Form::kF16;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < 32; i += 8) {
    uint32_t words[4];
    load_words<4, kReading>(from + 64 * group + 2 * i, words);
    for (int j = 0; j < 4; ++j) {
      const auto low = static_cast<uint16_t>(words[j]), high = static_cast<uint16_t>(words[j] >> 16);
      to[i + 2 * j] = half ? float_of_f16(low) : float_of_bf16(low);
      to[i + 2 * j + 1] = half ? float_of_f16(high) : float_of_bf16(high);
    }
  }
}

// 32 values of a matrix of kBits, or of a dense one (0).
template <int kBits, Reading kReading = Reading::kCached>
BATON_INLINE void decode32(const Matrix& matrix, const Lookup& table, int64_t row, int32_t group, float* to) {
  if constexpr (kBits == 0) {
    dense32<kReading>(matrix, row, group, to);
  } else {
    const float zero = matrix.has_table ? 0.0f : static_cast<float>(matrix.zero);
    values_of_group(group_of<kBits, kReading>(matrix, table, row, group),
                    scales_in_row(matrix, row_at(matrix, row), group), zero, to);
  }
}

// 32 values of any matrix: for what is not in a hurry.
BATON_INLINE void decode32_any(const Matrix& matrix, int64_t row, int32_t group, float* to) {
  const Lookup table = lookup_of(matrix);
  switch (matrix.form == Form::kCodes ? matrix.bits : 0) {
    case 0:
      return decode32<0>(matrix, table, row, group, to);
    case 1:
      return decode32<1>(matrix, table, row, group, to);
    case 2:
      return decode32<2>(matrix, table, row, group, to);
    case 3:
      return decode32<3>(matrix, table, row, group, to);
    case 4:
      return decode32<4>(matrix, table, row, group, to);
    case 5:
      return decode32<5>(matrix, table, row, group, to);
    case 6:
      return decode32<6>(matrix, table, row, group, to);
    default:
      return decode32<8>(matrix, table, row, group, to);
  }
}

// The same, rounded to bf16 once, in pairs: 16 words.
template <int kBits, Reading kReading = Reading::kCached>
BATON_INLINE void decode32_bf16(const Matrix& matrix, const Lookup& table, int64_t row, int32_t group, uint32_t* to) {
  if constexpr (kBits == 0) {
    if (matrix.form == Form::kBF16) {
      for (int i = 0; i < 4; ++i) load_words<4, kReading>(row_at(matrix, row) + 64 * group + 16 * i, to + 4 * i);
      return;
    }
  }
  float values[32];
  decode32<kBits, kReading>(matrix, table, row, group, values);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < 16; ++i) to[i] = bf16_pair(values[2 * i], values[2 * i + 1]);
}

// q of a group as bf16, exactly, in pairs: 16 words. For products that are scaled afterwards.
template <int kBits>
BATON_INLINE void integers_bf16(const Group<kBits>& group, uint32_t* to) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < 8; ++i) {
    const uint32_t word = group.words[i];
    to[2 * i] = bf16_pair(float_of_byte<0>(word), float_of_byte<1>(word));
    to[2 * i + 1] = bf16_pair(float_of_byte<2>(word), float_of_byte<3>(word));
  }
}

// One value: for the bodies that stand for kernels on the host, which take any matrix.
BATON_INLINE int32_t code_at(const Matrix& matrix, int64_t row, int32_t column) {
  const StripGroup of(matrix.pitch, column / kGroup);
  const unsigned char* plane = row_at(matrix, row) + of.strip * matrix.strip_bytes;
  const int32_t i = column & 31;
  if (matrix.bits == 8) return static_cast<int8_t>(plane[16 * (i < 16 ? of.group : of.groups + of.group) + (i & 15)]);
  int32_t code = 0, at = 0;
  if ((matrix.bits & 4) != 0) {
    code = plane[16 * of.group + (i & 15)] >> (i < 16 ? 0 : 4) & 15;
    plane += 16 * of.groups, at = 4;
  }
  if ((matrix.bits & 2) != 0) {
    code |= (plane[8 * of.group + (i & 7)] >> (2 * (i >> 3)) & 3) << at;
    plane += 8 * of.groups, at += 2;
  }
  if ((matrix.bits & 1) != 0) code |= (plane[4 * of.group + (i & 3)] >> (i >> 2) & 1) << at;
  return code;
}
BATON_INLINE float value_at(const Matrix& matrix, int64_t row, int32_t column) {
  const unsigned char* const from = row_at(matrix, row);
  if (matrix.form == Form::kF32) return reinterpret_cast<const float*>(from)[column];
  if (matrix.form != Form::kCodes) {
    const uint16_t bits = reinterpret_cast<const uint16_t*>(from)[column];
    return matrix.form == Form::kF16 ? float_of_f16(bits) : float_of_bf16(bits);
  }
  const int32_t code = code_at(matrix, row, column);
  const int32_t v = matrix.has_table ? matrix.table[code] : code - matrix.zero;
  const Scales scales = scales_in_row(matrix, row_at(matrix, row), column >> 5);
  const int half = column >> 4 & 1;
  return scales.d[half] * static_cast<float>(v) - scales.m[half];
}

}  // namespace baton::cuda
