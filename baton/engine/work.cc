// Sizes of states.
#include "baton/engine/work.h"

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

}  // namespace baton
