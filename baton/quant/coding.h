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

// What a block's d and m are stored as. kPower: one byte e, 2^(e - 128). kNone: there are none, d is 1.
enum class ScaleType : uint8_t { kF16, kF32, kPower, kNone };

// What codes stand for, where that is not the code itself. Of 1 bit kSign; of 3 bits kIq2 and kIq1M, the top bit being
// the value's or the shift's sign; of 4 bits the others, the top bit of kIq3Xxs, kIq3S and kE2M1 being the sign.
enum class CodeTable : uint8_t { kNone, kIq4, kE2M1, kIq2, kIq3Xxs, kIq3S, kIq1M, kSign };
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int8_t kIq2Values[16] = {8, 25, 43, 0, -8, -25, -43, 0};
constexpr int8_t kIq3XxsValues[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
constexpr int8_t kIq3SValues[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
constexpr int8_t kIq1MValues[16] = {-7, 1, 9, 0, -9, -1, 7, 0};  // eight times -1, 0 or 1, an eighth up or down
constexpr int8_t kSignValues[16] = {-1, 1};
constexpr const int8_t* kCodeValues[] = {nullptr,       kIq4Values,  kTwiceE2M1,  kIq2Values,
                                         kIq3XxsValues, kIq3SValues, kIq1MValues, kSignValues};
static constexpr const int8_t* values_of(CodeTable table) { return kCodeValues[static_cast<int>(table)]; }

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
  int halvings = 0;   // d and m are the stored numbers / 2^halvings
  bool e4m3 = false;  // the byte s is half of an E4M3 number, without sign
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
