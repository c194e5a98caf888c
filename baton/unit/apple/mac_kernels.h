// The loops of the emulated engine's products (mac.h), once per instruction set. Each output is summed over k in order,
// multiply then add, so that every instruction set and every column gives the same bits.
#pragma once

#include <cstddef>

namespace baton::apple {

inline constexpr size_t kMacColumns = 32;

struct MacKernels {
  // out[r][c] = sum over k of w[r][k] x[k][c] for the first `columns` columns; rows of x and out are kMacColumns long.
  // Columns behind them, up to the next multiple of 16, may be written too.
  void (*products)(const float* w, const float* x, size_t rows, size_t k, size_t columns, float* out);
  // fp16 values, possibly unaligned, as f32; NaN may change its payload.
  void (*decode)(const std::byte* from, float* to, size_t count, bool flush_subnormals);
  // The products of fp16 weights with a single column x[k]: out[r * kMacColumns].
  void (*column)(const std::byte* w, const float* x, size_t rows, size_t k, bool flush_subnormals, float* out);
};

// The fastest that this processor can run.
const MacKernels& mac_kernels();

}  // namespace baton::apple
