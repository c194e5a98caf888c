// A bridge plan: how each segment of one layout becomes the same segment of another. Computed once per pair of
// executors, pure, printable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/state/layout.h"

namespace baton {

enum class MoveKind : uint8_t {
  kAlias,      // same executor: the state itself is handed over, nothing moves
  kCopy,       // same type and order of dims: runs of bytes
  kTranspose,  // same type, another order of dims
  kConvert,    // another type (and perhaps order)
};
std::string_view to_string(MoveKind kind);

struct SegmentPlan {
  size_t segment;  // index in both layouts
  MoveKind kind;
  DType from, to;
};

struct BridgePlan {
  std::vector<SegmentPlan> segments;
  uint64_t bytes_fixed = 0;      // sealed bytes that do not depend on the position
  uint64_t bytes_per_token = 0;  // sealed bytes per token
};

// kMismatch when the layouts are not of the same Program (kinds, layers, dims except tokens); the message names the
// segment. kInternal when a layout is not sound (check_layout). `same_executor`: every segment is an alias.
// A layout with room for one token does not always show where its tokens dim lies: the plan of such layouts may print
// kCopy where tokens are innermost. Moving states goes by the layouts of the states themselves.
Result<BridgePlan> plan_bridge(const Layout& from, const Layout& to, bool same_executor);

// A table: segment, type and order of dims on both sides, kind, bytes; then the sum.
std::string to_text(const BridgePlan& plan, const Layout& from, const Layout& to);

}  // namespace baton
