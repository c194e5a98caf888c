// Tiles of 8 rows and 8 channels are turned in registers.
#include "baton/unit/ane/columns.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "baton/unit/apple/fp16.h"

namespace baton::ane {
namespace {

using Halves = uint16_t __attribute__((vector_size(16)));
constexpr int64_t kTile = 8;

// Three rounds of interleaving: 16-bit, 32-bit and 64-bit pieces.
void transpose(Halves (&t)[kTile]) {
  Halves a[kTile], b[kTile];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = __builtin_shufflevector(t[2 * i], t[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    a[2 * i + 1] = __builtin_shufflevector(t[2 * i], t[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const Halves low = a[4 * i + j], high = a[4 * i + 2 + j];
      b[4 * i + j] = __builtin_shufflevector(low, high, 0, 1, 8, 9, 4, 5, 12, 13);
      b[4 * i + 2 + j] = __builtin_shufflevector(low, high, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = __builtin_shufflevector(b[i], b[4 + i], 0, 1, 2, 3, 8, 9, 10, 11);
    t[4 + i] = __builtin_shufflevector(b[i], b[4 + i], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// `count` values of a row as fp16, the rest of the tile 0; keeps the largest magnitude as bits.
Halves narrow(const float* from, int64_t count, uint32_t* largest) {
  float values[kTile] = {};
  std::memcpy(values, from, static_cast<size_t>(count) * sizeof(float));
  uint16_t halves[kTile];
  uint32_t top[kTile];
  for (int64_t i = 0; i < kTile; ++i) {
    top[i] = std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu;
    halves[i] = apple::to_fp16(values[i]);
  }
  for (const uint32_t magnitude : top) *largest = std::max(*largest, magnitude);
  return std::bit_cast<Halves>(halves);
}

}  // namespace

float pack_columns(const float* x, int64_t stride, int64_t rows, int64_t channels, int64_t columns, uint16_t* out) {
  uint32_t largest = 0;
  for (int64_t c = 0; c < channels; c += kTile) {
    const int64_t wide = std::min(kTile, channels - c);
    for (int64_t r = 0; r < rows; r += kTile) {
      const int64_t tall = std::min(kTile, rows - r);
      Halves tile[kTile] = {};
      for (int64_t i = 0; i < tall; ++i) tile[i] = narrow(x + (r + i) * stride + c, wide, &largest);
      transpose(tile);
      // Columns come in multiples of 32, so a whole tile always fits.
      for (int64_t i = 0; i < wide; ++i) std::memcpy(out + (c + i) * columns + r, &tile[i], sizeof(Halves));
    }
    const int64_t used = (rows + kTile - 1) / kTile * kTile;
    for (int64_t i = 0; i < wide; ++i) {
      std::memset(out + (c + i) * columns + used, 0, static_cast<size_t>(columns - used) * sizeof(uint16_t));
    }
  }
  return std::bit_cast<float>(std::min(largest, 0x7f800000u));
}

void unpack_columns(const uint16_t* from, int64_t columns, int64_t first, int64_t rows, int64_t channels, bool add,
                    float* to, int64_t stride) {
  for (int64_t c = 0; c < channels; c += kTile) {
    const int64_t wide = std::min(kTile, channels - c);
    for (int64_t r = 0; r < rows; r += kTile) {
      const int64_t tall = std::min(kTile, rows - r);
      Halves tile[kTile] = {};
      const size_t held = sizeof(uint16_t) * static_cast<size_t>(std::min(kTile, columns - first - r));
      for (int64_t i = 0; i < wide; ++i) std::memcpy(&tile[i], from + (c + i) * columns + first + r, held);
      transpose(tile);
      for (int64_t i = 0; i < tall; ++i) {
        float* row = to + (r + i) * stride + c;
        uint16_t halves[kTile];
        float values[kTile];
        std::memcpy(halves, &tile[i], sizeof(halves));
        for (int64_t j = 0; j < kTile; ++j) values[j] = apple::from_fp16(halves[j]);
        if (add) {
          for (int64_t j = 0; j < wide; ++j) row[j] += values[j];
        } else {
          std::memcpy(row, values, static_cast<size_t>(wide) * sizeof(float));
        }
      }
    }
  }
}

}  // namespace baton::ane
