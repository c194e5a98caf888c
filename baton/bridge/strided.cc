// Contiguous runs are copied or converted whole; where the last dim is not innermost, 32 x 32 tiles are transposed in
// cache.
#include "baton/bridge/strided.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/bridge/convert.h"

namespace baton {
namespace {

constexpr uint64_t kTile = 32;

// to[i * to_row + j * to_column] = from[i * from_row + j * from_column], for one tile. Strides in elements.
template <class Bits>
void copy_tile(const std::byte* from, uint64_t from_row, uint64_t from_column, std::byte* to, uint64_t to_row,
               uint64_t to_column, uint64_t rows, uint64_t columns) {
  for (uint64_t j = 0; j < columns; ++j) {
    const std::byte* source = from + j * from_column * sizeof(Bits);
    std::byte* target = to + j * to_column * sizeof(Bits);
    for (uint64_t i = 0; i < rows; ++i) {
      store_as<Bits>(target + i * to_row * sizeof(Bits), load_as<Bits>(source + i * from_row * sizeof(Bits)));
    }
  }
}

// Calls `tile(i, j, rows, columns)` over a rows x columns matrix.
template <class Tile>
void for_tiles(uint64_t rows, uint64_t columns, Tile tile) {
  for (uint64_t i = 0; i < rows; i += kTile) {
    for (uint64_t j = 0; j < columns; j += kTile) tile(i, j, std::min(kTile, rows - i), std::min(kTile, columns - j));
  }
}

template <class Bits>
void gather_slab(const std::byte* from, const Dims& strides, uint64_t rows, uint64_t columns, std::byte* out) {
  for_tiles(rows, columns, [&](uint64_t i, uint64_t j, uint64_t tile_rows, uint64_t tile_columns) {
    copy_tile<Bits>(from + (i * strides[1] + j * strides[2]) * sizeof(Bits), strides[1], strides[2],
                    out + (i * columns + j) * sizeof(Bits), columns, 1, tile_rows, tile_columns);
  });
}

template <class Bits>
void scatter_slab(const std::byte* values, DType from, const SegmentLayout& layout, uint64_t rows, uint64_t columns,
                  std::byte* out) {
  const uint64_t bytes_in = value_bytes(from);
  const Dims& strides = layout.strides;
  std::array<std::byte, kTile * kTile * sizeof(Bits)> converted;
  for_tiles(rows, columns, [&](uint64_t i, uint64_t j, uint64_t tile_rows, uint64_t tile_columns) {
    for (uint64_t row = 0; row < tile_rows; ++row) {
      convert_run(values + ((i + row) * columns + j) * bytes_in, from, converted.data() + row * kTile * sizeof(Bits),
                  layout.dtype, tile_columns);
    }
    copy_tile<Bits>(converted.data(), kTile, 1, out + (i * strides[1] + j * strides[2]) * sizeof(Bits), strides[1],
                    strides[2], tile_rows, tile_columns);
  });
}

// A dim of one element may have any stride: it then does not stand in the way of a single run.
bool rows_join(const SegmentLayout& layout, uint64_t rows, uint64_t columns) {
  return rows == 1 || layout.strides[1] == columns;
}

bool row_is_run(const SegmentLayout& layout, uint64_t columns) { return columns == 1 || layout.strides[2] == 1; }

void gather_within(const Segment& segment, uint64_t slab, uint64_t row, uint64_t rows, uint64_t columns,
                   std::byte* out) {
  const SegmentLayout& layout = *segment.layout;
  const uint64_t bytes = value_bytes(layout.dtype);
  const std::byte* from = segment.data + (slab * layout.strides[0] + row * layout.strides[1]) * bytes;
  if (!row_is_run(layout, columns)) {
    bytes == 4 ? gather_slab<uint32_t>(from, layout.strides, rows, columns, out)
               : gather_slab<uint16_t>(from, layout.strides, rows, columns, out);
  } else if (rows_join(layout, rows, columns)) {
    std::memcpy(out, from, rows * columns * bytes);
  } else {
    for (uint64_t i = 0; i < rows; ++i) {
      std::memcpy(out + i * columns * bytes, from + i * layout.strides[1] * bytes, columns * bytes);
    }
  }
}

}  // namespace

void gather_rows(const Segment& segment, const Dims& dims, uint64_t first, uint64_t count, std::byte* out) {
  const uint64_t row_bytes = dims[2] * value_bytes(segment.layout->dtype);
  while (count > 0) {
    const uint64_t slab = first / dims[1], row = first % dims[1];
    const uint64_t rows = std::min(count, dims[1] - row);
    gather_within(segment, slab, row, rows, dims[2], out);
    out += rows * row_bytes;
    first += rows;
    count -= rows;
  }
}

void scatter(const std::byte* values, DType from, const Dims& dims, const Segment& into) {
  const SegmentLayout& layout = *into.layout;
  const uint64_t rows = dims[1], columns = dims[2];
  const uint64_t bytes_in = value_bytes(from), bytes_out = value_bytes(layout.dtype);
  if (rows == 0) return;  // no tokens: perhaps no memory either
  for (uint64_t slab = 0; slab < dims[0]; ++slab) {
    const std::byte* source = values + slab * rows * columns * bytes_in;
    std::byte* target = into.data + slab * layout.strides[0] * bytes_out;
    if (!row_is_run(layout, columns)) {
      bytes_out == 4 ? scatter_slab<uint32_t>(source, from, layout, rows, columns, target)
                     : scatter_slab<uint16_t>(source, from, layout, rows, columns, target);
    } else if (rows_join(layout, rows, columns)) {
      convert_run(source, from, target, layout.dtype, rows * columns);
    } else {
      for (uint64_t i = 0; i < rows; ++i) {
        convert_run(source + i * columns * bytes_in, from, target + i * layout.strides[1] * bytes_out, layout.dtype,
                    columns);
      }
    }
  }
}

}  // namespace baton
