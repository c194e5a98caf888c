// Integer codes with scales and zero points, of any layout, as blocks of a format or as F32.
#pragma once

#include <functional>
#include <vector>

#include "baton/model/packed_parts.h"

namespace baton {

// value = scale * (code - zero)
struct PackedIntegers {
  int bits = 4;
  int64_t groups = 1;             // of columns, with a scale each
  std::vector<int32_t> group_of;  // by column, where groups are not columns in turn
  // Codes of rows [first, first + count): [count][columns].
  std::function<void(int64_t first, int64_t count, uint8_t* codes)> codes;
  std::vector<float> scales;   // [rows][groups]
  std::vector<int32_t> zeros;  // likewise
};

// The three layouts. Errors name the tensor.
Result<PackedIntegers> read_gptq(const PackedParts& parts);
Result<PackedIntegers> read_awq(const PackedParts& parts);
Result<PackedIntegers> read_compressed_tensors(const PackedParts& parts);  // weight_packed, or weight of I8

}  // namespace baton
