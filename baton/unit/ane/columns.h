// Rows of f32 registers to columns of fp16 surfaces and back: a token is a row here and a column there.
#pragma once

#include <cstdint>

namespace baton::ane {

// out[c * columns + r] = fp16(x[r * stride + c]) for `rows` rows of `channels` values, rounded to nearest even; columns
// past `rows` become 0. Returns the largest magnitude, infinity when there is a NaN.
float pack_columns(const float* x, int64_t stride, int64_t rows, int64_t channels, int64_t columns, uint16_t* out);

// to[r * stride + c] = (add ? to[r * stride + c] : 0) + from[c * columns + first + r], for `rows` rows.
void unpack_columns(const uint16_t* from, int64_t columns, int64_t first, int64_t rows, int64_t channels, bool add,
                    float* to, int64_t stride);

}  // namespace baton::ane
