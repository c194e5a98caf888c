// Packs a weight matrix into the panels the kernels read, at load. Layouts: packing.h.
#pragma once

#include <cstdint>

#include "baton/quant/format.h"
#include "baton/unit/host/packing.h"

namespace baton::host {

// The packing for a stored type and whether it keeps the stored values as they are. A type without one is decoded to
// F32.
Packing packing_of(DType dtype);
bool is_native(DType dtype);

// Everything but `data`.
Matrix matrix_shape(DType dtype, int64_t rows, int64_t columns);
inline int64_t matrix_bytes(const Matrix& m) { return m.panels * m.panel_bytes; }

// Writes panels [begin, end) of `source` (row-major, `dtype`, any alignment) to `to`, the matrix's first byte.
// `row` is scratch of `columns` floats. Panels are independent: threads may share a matrix.
void pack_panels(const Matrix& m, DType dtype, const std::byte* source, int64_t begin, int64_t end, unsigned char* to,
                 float* row);

}  // namespace baton::host
