// What the numbers of a format's block mean, as constants: read by the format's decoder, by the packings of the host's
// kernels and by their products. Files of instruction sets include this: all but the types is static.
#pragma once

#include <cstdint>

namespace baton {

enum class DType : uint8_t {
#define BATON_FORMAT(name, ...) k##name,
#include "baton/quant/format_list.inc"
#undef BATON_FORMAT
};

// The `ggml_id` of a format that GGUF files cannot hold.
inline constexpr uint32_t kNoGgmlId = 0xffffffff;

// What a block's d and m are stored as. kPower: one byte e, 2^(e - 128).
enum class ScaleType : uint8_t { kF16, kF32, kPower };

// What codes of 4 bits stand for, where that is not the code itself.
enum class CodeTable : uint8_t { kNone, kIq4, kE2M1 };
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// value = d * v + m, v being code - zero or the table's value at the code. With parts: d * s * v - m * n, where each
// part of the block has small integers s and n. Without minimums there are no m and n, and s has a sign.
struct Coding {
  int bits = 0;  // of a code; 0: the block is a value, and the rest means nothing
  int zero = 0;
  CodeTable table = CodeTable::kNone;
  ScaleType scale = ScaleType::kF16;
  bool minimums = false;
  int parts = 0;      // 0: none
  int part_bits = 8;  // of s and n; 4: they share a byte, s the low half
  bool operator==(const Coding&) const = default;
};

// A block taken apart.
struct Codes {
  uint8_t codes[256];  // in the order of values
  uint32_t d, m;       // the bits as stored
  uint8_t s[16], n[16];
};

// A line of format_list.inc.
struct FormatLine {
  uint32_t ggml_id;
  uint32_t block_elements, block_bytes;
  Coding coding;
};
constexpr FormatLine kFormatLines[] = {
#define BATON_FORMAT(name, id, elements, bytes, ...) {id, elements, bytes, {__VA_ARGS__}},
#include "baton/quant/format_list.inc"
#undef BATON_FORMAT
};
static constexpr const FormatLine& line_of(DType dtype) { return kFormatLines[static_cast<int>(dtype)]; }

}  // namespace baton
