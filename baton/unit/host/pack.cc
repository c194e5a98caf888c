// Sizes of panels, and which writer fills them.
#include "baton/unit/host/pack.h"

#include <algorithm>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/unit/host/pack_rows.h"

namespace baton::host {
namespace {

GroupLayout layout_of(const Matrix& m) {
  GroupLayout layout = group_layout(m.packing);
  if (layout.blocks == 0) layout.blocks = static_cast<int>(m.group / kBlock);
  return layout;
}

int64_t panel_bytes(const Matrix& m) {
  switch (m.packing) {
    case Packing::kF32:
      return m.columns * 64;
    case Packing::kF16:
      return round_up(m.columns * 32, 64);
    case Packing::kBF16:
      return round_up(m.columns, 2) * 32;
    default: {
      const GroupLayout layout = layout_of(m);
      return (m.columns / kBlock + layout.blocks - 1) / layout.blocks * group_bytes(layout);
    }
  }
}

void put_row(const Matrix& m, DType dtype, const Bytes* from, const Lane& to, float* row) {
  switch (m.packing) {
    case Packing::kF32:
      format_of(dtype).decode(reinterpret_cast<const std::byte*>(from), row, static_cast<size_t>(m.columns));
      for (int64_t k = 0; k < m.columns; ++k) store_as(to.panel + 64 * k + 4 * to.lane, row[k]);
      return;
    case Packing::kF16:
      for (int64_t k = 0; k < m.columns; ++k) std::memcpy(to.panel + 32 * k + 2 * to.lane, from + 2 * k, 2);
      return;
    case Packing::kBF16:
      for (int64_t k = 0; k < m.columns; ++k) {
        std::memcpy(to.panel + 64 * (k / 2) + 4 * to.lane + 2 * (k % 2), from + 2 * k, 2);
      }
      return;
    case Packing::kQ8_0:
      return put_q8_0(from, to);
    case Packing::kQ4_0:
    case Packing::kQ5_0:
      return put_simple(from, false, to);
    case Packing::kQ4_1:
    case Packing::kQ5_1:
      return put_simple(from, true, to);
    case Packing::kQ4_K:
    case Packing::kQ5_K:
      return put_super(from, to);
    case Packing::kQ6_K:
      return put_q6_k(from, to);
    case Packing::kQ2_K:
      return put_q2_k(from, to);
    case Packing::kQ3_K:
      return put_q3_k(from, to);
    case Packing::kIQ4_NL:
      return put_iq4_nl(from, to);
    case Packing::kIQ4_XS:
      return put_iq4_xs(from, to);
    case Packing::kMXFP4:
      return put_mxfp4(from, to);
    case Packing::kAffine2:
    case Packing::kAffine3:
    case Packing::kAffine4:
    case Packing::kAffine5:
    case Packing::kAffine6:
    case Packing::kAffine8:
      return put_affine(from, to);
  }
}

}  // namespace

Packing packing_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Packing::kF32;
    case DType::kF16:
      return Packing::kF16;
    case DType::kBF16:
      return Packing::kBF16;
    case DType::kQ8_0:
      return Packing::kQ8_0;
    case DType::kQ4_0:
      return Packing::kQ4_0;
    case DType::kQ4_1:
      return Packing::kQ4_1;
    case DType::kQ5_0:
      return Packing::kQ5_0;
    case DType::kQ5_1:
      return Packing::kQ5_1;
    case DType::kQ4_K:
      return Packing::kQ4_K;
    case DType::kQ5_K:
      return Packing::kQ5_K;
    case DType::kQ6_K:
      return Packing::kQ6_K;
    case DType::kQ2_K:
      return Packing::kQ2_K;
    case DType::kQ3_K:
      return Packing::kQ3_K;
    case DType::kIQ4_NL:
      return Packing::kIQ4_NL;
    case DType::kIQ4_XS:
      return Packing::kIQ4_XS;
    case DType::kMXFP4:
      return Packing::kMXFP4;
    case DType::kMLX2_G32:
    case DType::kMLX2_G64:
    case DType::kMLX2_G128:
      return Packing::kAffine2;
    case DType::kMLX3_G32:
    case DType::kMLX3_G64:
    case DType::kMLX3_G128:
      return Packing::kAffine3;
    case DType::kMLX4_G32:
    case DType::kMLX4_G64:
    case DType::kMLX4_G128:
      return Packing::kAffine4;
    case DType::kMLX5_G32:
    case DType::kMLX5_G64:
    case DType::kMLX5_G128:
      return Packing::kAffine5;
    case DType::kMLX6_G32:
    case DType::kMLX6_G64:
    case DType::kMLX6_G128:
      return Packing::kAffine6;
    case DType::kMLX8_G32:
    case DType::kMLX8_G64:
    case DType::kMLX8_G128:
      return Packing::kAffine8;
  }
  return Packing::kF32;
}

bool is_native(DType dtype) { return dtype == DType::kF32 || packing_of(dtype) != Packing::kF32; }

Matrix matrix_shape(DType dtype, int64_t rows, int64_t columns) {
  Matrix m;
  m.packing = packing_of(dtype);
  m.rows = rows;
  m.columns = columns;
  m.panels = (rows + kLanes - 1) / kLanes;
  if (m.packing >= Packing::kAffine2) m.group = format_of(dtype).block_elements;
  m.panel_bytes = panel_bytes(m);
  return m;
}

void pack_panels(const Matrix& m, DType dtype, const std::byte* source, int64_t begin, int64_t end, Bytes* to,
                 float* row) {
  const Format& format = format_of(dtype);
  const GroupLayout layout = is_integer(m.packing) ? layout_of(m) : GroupLayout{};
  const int64_t row_size = m.columns / format.block_elements * format.block_bytes;
  for (int64_t p = begin; p < end; ++p) {
    Bytes* panel = to + p * m.panel_bytes;
    const int64_t rows = std::min<int64_t>(kLanes, m.rows - p * kLanes);
    const bool ragged = rows < kLanes || (m.packing == Packing::kBF16 && m.columns % 2 != 0);
    if (ragged) std::memset(panel, 0, static_cast<size_t>(m.panel_bytes));
    for (int64_t r = 0; r < rows; ++r) {
      const auto* from = reinterpret_cast<const Bytes*>(source + (p * kLanes + r) * row_size);
      put_row(m, dtype, from, {panel, layout, static_cast<int>(r), m.columns}, row);
    }
  }
}

}  // namespace baton::host
