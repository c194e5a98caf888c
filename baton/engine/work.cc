// Sizes of states, and the comparison of logits behind the bridge proof.
#include "baton/engine/work.h"

#include <cmath>
#include <limits>

namespace baton {
namespace {

uint64_t element_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }  // states hold f32, f16 or bf16

bool grows(SlotKind kind) { return kind == SlotKind::kKeys || kind == SlotKind::kValues; }

}  // namespace

uint64_t state_bytes(const Layout& layout) {
  uint64_t bytes = 0;
  for (const SegmentLayout& segment : layout.segments) bytes += segment.elements * element_bytes(segment.dtype);
  return bytes;
}

uint64_t state_bytes_estimate(const Layout& layout_of_one_token, uint64_t tokens) {
  uint64_t bytes = 0;
  for (const SegmentLayout& segment : layout_of_one_token.segments) {
    bytes += segment.elements * element_bytes(segment.dtype) * (grows(segment.kind) ? tokens : 1);
  }
  return bytes;
}

Comparison compare_logits(std::span<const float> moved, std::span<const float> own, double tolerance) {
  BATON_CHECK(moved.size() == own.size() && !own.empty());
  const auto top = top2_gap(own);
  const auto moved_top = top2_gap(moved);
  if (!top || !moved_top) return {.max_abs_dlogit = std::numeric_limits<double>::infinity()};
  double largest = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(moved[i]) - static_cast<double>(own[i])));
  }
  const bool agreed = moved_top->id == top->id;
  return {.max_abs_dlogit = largest,
          .passed = largest <= tolerance,
          .agreed = agreed,
          .near_tie = !agreed && top->gap <= 2 * tolerance};
}

}  // namespace baton
