// A stored matrix as a Matrix of a card: its shape, and its rows taken apart into the Matrix's planes and scales. Of
// the host; weights.h brings it to the card.
//
// Values keep their bits: value_at (codes.h) of what is packed is Format::decode of what is stored, for all types that
// have codes and for F32, F16 and BF16. Types of another kind (F8_G32) are held as F32, likewise exactly. What grows:
// small integers of 4 or 6 bits beside codes take 8, the codebooks of IQ types hold a code for each value, scales of
// MXFP4 take two bytes, and those of NVFP4 two or four for each 16 values, tensor's scale included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/quant/format.h"
#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// A matrix takes a multiple of it, so that the next begins at one.
inline constexpr uint64_t kWeightAlignment = 256;

struct Shape {
  Matrix matrix;  // but for the address

  uint64_t row_bytes() const { return static_cast<uint64_t>(matrix.row_bytes); }
  uint64_t bytes() const {
    const uint64_t rows = row_bytes() * static_cast<uint64_t>(matrix.rows);
    return (rows + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
  }
  // `matrix` at that memory.
  Matrix at(Address address) const {
    Matrix placed = matrix;
    placed.values = address;
    return placed;
  }
  // Whether matrices of both shapes are read by the same instructions, but for their rows.
  bool like(const Shape& other) const;
};

// As stored where a Matrix can hold the type, else as F32; so, too, where `floats` asks for it.
Shape shape_of(DType dtype, int64_t rows, int64_t columns, bool floats = false);
// Whether it is as stored.
bool is_native(DType dtype);

// Whether rows are stored as they are packed, byte by byte, one behind the other.
bool is_stored_alike(const Shape& shape, DType dtype);
// Rows [begin, end) of `source` (row-major, `dtype`, any alignment) to `to`, the place of row `begin`. Padding is
// written, too. Threads may share a matrix.
void pack_rows(const Shape& shape, DType dtype, const std::byte* source, int64_t begin, int64_t end, unsigned char* to);

}  // namespace baton::cuda
