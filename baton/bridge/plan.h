// A bridge plan: how each segment of one unit's states becomes the same segment of another's. Pure, printable, and what
// the bridge executes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/state/shape.h"

namespace baton {

enum class MoveKind : uint8_t {
  kCopy,     // the same type: bytes
  kConvert,  // another type: values, rounded
};
std::string_view to_string(MoveKind kind);

struct SegmentPlan {
  Segment from;
  DType to;
  MoveKind kind() const { return from.dtype == to ? MoveKind::kCopy : MoveKind::kConvert; }
};

struct BridgePlan {
  std::vector<SegmentPlan> segments;
  uint64_t bytes_fixed = 0;      // moved whatever the position
  uint64_t bytes_per_token = 0;  // moved per token
};

// kMismatch when the shapes are not of the same Program (kinds, layers, dims); the message names the segment. kInternal
// when a shape is not sound (check_shape).
Result<BridgePlan> plan_bridge(const StateShape& from, const StateShape& to);

// A table: segment, type on both sides, kind, bytes; then the sum.
std::string to_text(const BridgePlan& plan);

}  // namespace baton
