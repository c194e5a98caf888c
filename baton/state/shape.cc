// Sizes, checks and printing of state shapes.
#include "baton/state/shape.h"

#include <fmt/format.h>

#include "baton/base/bytes.h"

namespace baton {
namespace {

constexpr size_t kTokensDim = 1;

Segment segment_of(const Slot& slot, DType kv_type) {
  const auto heads = static_cast<uint64_t>(slot.heads);
  const auto rows = static_cast<uint64_t>(slot.rows);
  const auto columns = static_cast<uint64_t>(slot.columns);
  switch (slot.kind) {
    case SlotKind::kKeys:
    case SlotKind::kValues:
      return {slot.kind, slot.layer, kv_type, {heads, 0, columns}};
    case SlotKind::kConv:
      return {slot.kind, slot.layer, DType::kF32, {1, rows, columns}};
    case SlotKind::kRecurrent:
      break;
  }
  return {slot.kind, slot.layer, DType::kF32, {heads, rows, columns}};
}

Status check_segment(const Segment& segment) {
  const auto refuse = [&](std::string why) {
    return fail(Code::kInternal, fmt::format("state shape: {}: {}", segment_name(segment.kind, segment.layer), why));
  };
  if (!is_state_type(segment.dtype)) return refuse("type is not F32, F16, BF16, Q8_0 or Q4_0");
  if (in_blocks(segment.dtype) && !has_tokens_dim(segment.kind)) return refuse("only keys and values are in blocks");
  const Dims dims = dims_at(segment, 1);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return refuse(fmt::format("dim {} is zero", i));
  }
  uint64_t bytes = 0;
  if (!dense_bytes(dims, segment.dtype, &bytes)) return refuse("size overflows");
  return {};
}

}  // namespace

StateShape state_shape(const Program& program, DType kv_type) {
  StateShape shape;
  shape.segments.reserve(program.slots.size());
  for (const Slot& slot : program.slots) shape.segments.push_back(segment_of(slot, kv_type));
  return shape;
}

Dims dims_at(const Segment& segment, uint64_t tokens) {
  Dims dims = segment.dims;
  if (has_tokens_dim(segment.kind)) dims[kTokensDim] = tokens;
  return dims;
}

uint64_t value_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    default:
      return 0;
  }
}

bool dense_bytes(const Dims& dims, DType dtype, uint64_t* out) {
  *out = 0;
  if (!is_state_type(dtype)) return false;
  const uint64_t row = row_bytes_of(dtype, dims[2]);
  return (row > 0 || dims[2] == 0) && checked_mul(row, dims[0], out) && checked_mul(*out, dims[1], out);
}

uint64_t section_bytes(const StateShape& shape, uint64_t tokens) {
  uint64_t sum = 0, bytes = 0;
  for (const Segment& segment : shape.segments) {
    if (!dense_bytes(dims_at(segment, tokens), segment.dtype, &bytes) || !checked_add(sum, bytes, &sum))
      return UINT64_MAX;
  }
  return sum;
}

uint64_t bytes_per_token(const StateShape& shape) { return section_bytes(shape, 1) - section_bytes(shape, 0); }

Status check_shape(const StateShape& shape) {
  for (const Segment& segment : shape.segments) BATON_OK(check_segment(segment));
  return {};
}

std::string segment_name(SlotKind kind, int32_t layer) { return fmt::format("layer {} {}", layer, to_string(kind)); }

std::string to_text(const StateShape& shape) {
  std::string text;
  for (const Segment& segment : shape.segments) {
    const bool grows = has_tokens_dim(segment.kind);
    const std::string rows = grows ? "n" : fmt::format("{}", segment.dims[kTokensDim]);
    const Dims dims = dims_at(segment, 1);
    const uint64_t bytes = dims[0] * dims[1] * row_bytes_of(segment.dtype, dims[2]);
    text += fmt::format("{:<20} {:<4} {:<18} {:>10} bytes{}\n", segment_name(segment.kind, segment.layer),
                        to_string(segment.dtype), fmt::format("[{}, {}, {}]", dims[0], rows, dims[2]), bytes,
                        grows ? " per token" : "");
  }
  return text;
}

}  // namespace baton
