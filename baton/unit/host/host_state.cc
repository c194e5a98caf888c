// Allocation and copies of states.
#include "baton/unit/host/host_state.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

#include "baton/base/bytes.h"

namespace baton::host {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kTokensMax = uint64_t{1} << 32;  // beyond any context; element counts cannot overflow below

}  // namespace

Status HostState::place() {
  uint64_t total = 0, stripe = UINT64_MAX;
  std::vector<uint64_t> offsets;
  for (const SegmentLayout& segment : layout_.segments) {
    offsets.push_back(total);
    uint64_t bytes = 0;
    if (!checked_mul(segment.elements, value_bytes(segment.dtype), &bytes) || !checked_add(total, bytes, &total) ||
        !checked_align(total, kAlignment, &total)) {
      return fail(Code::kOutOfMemory,
                  fmt::format("{}: the size of a state of {} tokens overflows", unit_, tokens_max()));
    }
    if (segment.dtype == DType::kF16) stripe = std::min(stripe, bytes / std::max<uint64_t>(segment.dims[0], 1));
  }
  // A head's keys of a few tokens at the beginning of each stripe: with huge pages that share out several stripes, the
  // first hand-over of 35 tokens zeroed all of a state of 4,096 (94 MB, 370 ms instead of 7).
  const Pages pages = stripe >= kHugePage ? Pages::kHuge : Pages::kSmall;
  bool used = false;
  auto memory = Recycled::take(total, fmt::format("a state of {} tokens; use a smaller context (-c)", tokens_max()),
                               unit_, pages, &used);
  if (!memory) return fail(std::move(memory).error());
  memory_ = *std::move(memory);
  for (size_t i = 0; i < offsets.size(); ++i) {
    segments_.push_back({&layout_.segments[i], reinterpret_cast<std::byte*>(memory_.data() + offsets[i])});
    const SegmentLayout& segment = layout_.segments[i];
    if (used && segment.dtype == DType::kF32) std::memset(segments_[i].data, 0, segment.elements * sizeof(float));
  }
  return {};
}

Result<std::unique_ptr<HostState>> HostState::create(const Program& program, uint64_t tokens_max,
                                                     std::string_view unit) {
  if (tokens_max > kTokensMax) {
    return fail(Code::kOutOfMemory,
                fmt::format("{}: a state of {} tokens; use a smaller context (-c)", unit, tokens_max));
  }
  try {
    std::unique_ptr<HostState> state(new HostState(tokens_max, unit));
    state->layout_ = canonical_layout(program, tokens_max, DType::kF16);
    BATON_OK(state->place());
    return state;
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, fmt::format("{}: no memory for a state; use a smaller context (-c)", unit));
  }
}

Result<std::unique_ptr<HostState>> HostState::clone() const {
  try {
    std::unique_ptr<HostState> copy(new HostState(tokens_max(), unit_));
    copy->layout_ = layout_;
    BATON_OK(copy->place());
    for (size_t i = 0; i < segments_.size(); ++i) {
      const SegmentLayout& segment = layout_.segments[i];
      // Of keys and values only the tokens held: the rest stays untouched, and so takes no memory.
      const Dims held = dims_at(segment, position());
      const uint64_t size = value_bytes(segment.dtype);
      for (uint64_t head = 0; head < held[0]; ++head) {
        const uint64_t offset = head * segment.strides[0] * size;
        std::memcpy(copy->segments_[i].data + offset, segments_[i].data + offset, held[1] * segment.strides[1] * size);
      }
    }
    copy->set_position(position());
    return copy;
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, fmt::format("{}: no memory for a copy of a state", unit_));
  }
}

}  // namespace baton::host
