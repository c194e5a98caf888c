// Number formats of weights: how many values a block holds, how many bytes it takes, what its numbers mean, and how to
// decode (and encode) it.
// One file per format, one line in format_list.inc. Layouts: fields in memory order at the top of each file; the source
// of the layouts is the GGUF format of ggml, whose type ids are `ggml_id`; for the MLX formats, MLX's own quantiser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "baton/base/status.h"
#include "baton/quant/coding.h"

namespace baton {

// One format. Plain data; all functions are pure and thread-safe.
struct Format {
  DType dtype;
  std::string_view name;    // as users and GGUF tools write it: "Q8_0", "BF16"
  uint32_t ggml_id;         // tensor type in GGUF files, or kNoGgmlId
  uint32_t block_elements;  // values per block, along the row
  uint32_t block_bytes;
  Coding coding;
  // Takes one block apart; `block` may be unaligned. Null where blocks are values.
  void (*unpack)(const std::byte* block, Codes& to);
  // `count` values, a multiple of block_elements; `from` may be unaligned.
  void (*decode)(const std::byte* from, float* to, size_t count);
  // Null when this project cannot write the format. Deterministic; byte-identical to the reference quantiser.
  void (*encode)(const float* from, std::byte* to, size_t count);
  // One row of `count` values by ggml's search with an importance matrix: `importance` has one weight for each value.
  // Null when the format does not use weights.
  void (*encode_weighted)(const float* from, const float* importance, std::byte* to, size_t count);
};

std::span<const Format> formats();
const Format& format_of(DType dtype);
// Null when unknown or kNoGgmlId.
const Format* format_by_ggml_id(uint32_t ggml_id);
const Format* format_by_name(std::string_view name);
inline std::string_view to_string(DType dtype) { return format_of(dtype).name; }

// Bytes of a row of `count` values; an error when `count` is not a multiple of the block or the size overflows.
Result<uint64_t> row_bytes(DType dtype, uint64_t count);

}  // namespace baton
