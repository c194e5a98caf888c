// How the values of a row lie in memory, in each type that states hold:
//   kF32, kF16, kBF16  one after the other
//   kQ8_0, kQ4_0       blocks of 32 of that format, byte for byte as its quantiser writes them; where a row ends within
//                      a block, zeros fill it up, so that rows are whole blocks
//   kQ4_0              moreover of rotated values: what fills the row up included, runs of n values, n the largest
//                      power of two up to kRotationMax that divides their number, are multiplied by the Hadamard matrix
//                      of order n over sqrt n, H[i][j] = (-1)^popcount(i & j). It is its own inverse, so that products
//                      of two rotated rows are those of the rows; an outlier is shared out among the values of a run,
//                      and 16 codes lose less (Ashkboos et al., "QuaRot", 2024).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "baton/base/status.h"
#include "baton/quant/format.h"

namespace baton {

inline constexpr uint64_t kRotationMax = 256;
inline constexpr uint64_t kRowBlock = 32;  // values in a block

// The types of keys and values that can be asked for, as they are written: "f16".
struct KvType {
  std::string_view word;
  DType dtype;
};
inline constexpr KvType kKvTypes[] = {
    {"f16", DType::kF16}, {"bf16", DType::kBF16}, {"q8_0", DType::kQ8_0}, {"q4_0", DType::kQ4_0}};
std::string kv_type_words();  // "f16|bf16|q8_0|q4_0"
// kInvalidInput lists them.
Result<DType> kv_type(std::string_view word);
std::string_view kv_word(DType dtype);  // "f32" for that

bool is_state_type(DType dtype);
inline bool in_blocks(DType dtype) { return dtype == DType::kQ8_0 || dtype == DType::kQ4_0; }
inline bool is_rotated(DType dtype) { return dtype == DType::kQ4_0; }

// `columns`, or what they are with what fills the last block up. Fewer than 2^60.
inline uint64_t padded_columns(DType dtype, uint64_t columns) {
  return in_blocks(dtype) ? (columns + kRowBlock - 1) / kRowBlock * kRowBlock : columns;
}
// 0 for a type that states cannot hold, and where it overflows.
uint64_t row_bytes_of(DType dtype, uint64_t columns);

// `count` values, a multiple of kRowBlock, in place.
void rotate(float* x, uint64_t count);

// What is left of a row: nothing, where it is not zero and yet below the smallest step; no numbers, where values are
// too large, or are none.
enum class RowFit : uint8_t { kFine, kLost, kNoNumbers };

// What a type makes of a row. A value that is no number, or too large, shows in what it is read as: as none, and so do
// others of its block and run.
RowFit encode_row(DType dtype, const float* x, uint64_t columns, std::byte* out);
void decode_row(DType dtype, const std::byte* row, uint64_t columns, float* out);
// The same of a row that was encoded elsewhere; of a type without blocks.
RowFit row_fit(DType dtype, const float* x, uint64_t columns);
// Makes a row no numbers at all: a wrong answer shows then.
void spoil_row(DType dtype, uint64_t columns, std::byte* row);

// `count` rows, one behind the other on both sides.
void encode_rows(DType dtype, const float* x, uint64_t columns, uint64_t count, std::byte* out);
void decode_rows(DType dtype, const std::byte* rows, uint64_t columns, uint64_t count, float* out);

}  // namespace baton
