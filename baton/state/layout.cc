// Sizes, checks and printing of state layouts.
#include "baton/state/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "baton/base/bytes.h"

namespace baton {
namespace {

constexpr size_t kTokensDim = 1;

SegmentLayout dense_segment(const Slot& slot, uint64_t tokens_max, DType kv_type) {
  SegmentLayout segment;
  segment.kind = slot.kind;
  segment.layer = slot.layer;
  const auto heads = static_cast<uint64_t>(slot.heads);
  const auto rows = static_cast<uint64_t>(slot.rows);
  const auto columns = static_cast<uint64_t>(slot.columns);
  switch (slot.kind) {
    case SlotKind::kKeys:
    case SlotKind::kValues:
      segment.dtype = kv_type;
      segment.dims = {heads, tokens_max, columns};
      break;
    case SlotKind::kConv:
      segment.dims = {1, rows, columns};
      break;
    case SlotKind::kRecurrent:
      segment.dims = {heads, rows, columns};
      break;
  }
  segment.strides = {segment.dims[1] * segment.dims[2], segment.dims[2], 1};
  segment.elements = segment.dims[0] * segment.strides[0];
  return segment;
}

// Dims in order of falling stride; equal strides keep the canonical order.
std::array<size_t, 3> by_stride(const Dims& strides) {
  std::array<size_t, 3> order{0, 1, 2};
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  return order;
}

std::array<std::string_view, 3> dim_names(SlotKind kind) {
  switch (kind) {
    case SlotKind::kKeys:
    case SlotKind::kValues:
      return {"heads", "tokens", "dim"};
    case SlotKind::kConv:
      return {"one", "columns", "channels"};
    case SlotKind::kRecurrent:
      break;
  }
  return {"heads", "key_dim", "value_dim"};
}

Status check_segment(const SegmentLayout& segment) {
  const auto refuse = [&](std::string why) {
    return fail(Code::kInternal, fmt::format("state layout: {}: {}", segment_name(segment.kind, segment.layer), why));
  };
  if (value_bytes(segment.dtype) == 0) return refuse("type is not F32, F16 or BF16");
  uint64_t bytes = 0;
  if (!checked_mul(segment.elements, value_bytes(segment.dtype), &bytes)) return refuse("size overflows");
  const bool grows = has_tokens_dim(segment.kind);
  for (size_t i = 0; i < segment.dims.size(); ++i) {
    if (segment.dims[i] == 0 && !(grows && i == kTokensDim)) return refuse(fmt::format("dim {} is zero", i));
  }
  if (segment.dims[kTokensDim] == 0) return {};  // room for no token: nothing to place
  // From the smallest stride up: each dim must step over all that the smaller ones span.
  auto order = by_stride(segment.strides);
  std::reverse(order.begin(), order.end());
  uint64_t span = 1;
  for (const size_t i : order) {
    if (segment.dims[i] == 1) continue;
    if (segment.strides[i] < span)
      return refuse(fmt::format("elements overlap: stride {} of dim {}", segment.strides[i], i));
    uint64_t reach = 0;
    if (!checked_mul(segment.strides[i], segment.dims[i] - 1, &reach) || !checked_add(span, reach, &span)) {
      return refuse("strides overflow");
    }
  }
  if (span > segment.elements) return refuse(fmt::format("needs {} elements, has {}", span, segment.elements));
  if (!dense_bytes(segment.dims, segment.dtype, &bytes)) return refuse("size overflows");
  return {};
}

}  // namespace

Layout canonical_layout(const Program& program, uint64_t tokens_max, DType kv_type) {
  Layout layout;
  layout.segments.reserve(program.slots.size());
  for (const Slot& slot : program.slots) layout.segments.push_back(dense_segment(slot, tokens_max, kv_type));
  return layout;
}

Dims dims_at(const SegmentLayout& segment, uint64_t tokens) {
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
  *out = value_bytes(dtype);
  if (*out == 0) return false;
  for (const uint64_t dim : dims) {
    if (!checked_mul(*out, dim, out)) return false;
  }
  return true;
}

uint64_t section_bytes(const Layout& layout, uint64_t tokens) {
  uint64_t sum = 0;
  for (const SegmentLayout& segment : layout.segments) {
    const Dims dims = dims_at(segment, tokens);
    sum += dims[0] * dims[1] * dims[2] * value_bytes(segment.dtype);
  }
  return sum;
}

uint64_t bytes_per_token(const Layout& layout) { return section_bytes(layout, 1) - section_bytes(layout, 0); }

Status check_layout(const Layout& layout) {
  for (const SegmentLayout& segment : layout.segments) BATON_OK(check_segment(segment));
  return {};
}

std::string segment_name(SlotKind kind, int32_t layer) { return fmt::format("layer {} {}", layer, to_string(kind)); }

std::string storage_order(const SegmentLayout& segment) {
  const auto names = dim_names(segment.kind);
  std::string text;
  for (const size_t i : by_stride(segment.strides)) {
    const bool counts_tokens = i == kTokensDim && has_tokens_dim(segment.kind);
    if (segment.dims[i] == 1 && !counts_tokens) continue;
    if (!text.empty()) text += ',';
    text += names[i];
  }
  return text;
}

std::string to_text(const Layout& layout) {
  std::string text;
  for (const SegmentLayout& segment : layout.segments) {
    const bool grows = has_tokens_dim(segment.kind);
    const std::string rows = grows ? "n" : fmt::format("{}", segment.dims[1]);
    const Dims dims = dims_at(segment, 1);
    const uint64_t bytes = dims[0] * dims[1] * dims[2] * value_bytes(segment.dtype);
    text += fmt::format("{:<20} {:<4} {:<18} {:<24} {:>10} bytes{}\n", segment_name(segment.kind, segment.layer),
                        to_string(segment.dtype), fmt::format("[{}, {}, {}]", segment.dims[0], rows, segment.dims[2]),
                        storage_order(segment), bytes, grows ? " per token" : "");
  }
  return text;
}

}  // namespace baton
