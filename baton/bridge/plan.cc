// Compares two shapes segment by segment.
#include "baton/bridge/plan.h"

#include <fmt/format.h>

namespace baton {
namespace {

std::string describe(const Segment& segment) {
  const std::string rows = has_tokens_dim(segment.kind) ? "n" : fmt::format("{}", segment.dims[1]);
  return fmt::format("{} [{}, {}, {}]", segment_name(segment.kind, segment.layer), segment.dims[0], rows,
                     segment.dims[2]);
}

bool same_part(const Segment& a, const Segment& b) {
  return a.kind == b.kind && a.layer == b.layer && dims_at(a, 0) == dims_at(b, 0);
}

uint64_t bytes_at_one_token(const Segment& segment) {
  const Dims dims = dims_at(segment, 1);
  return dims[0] * dims[1] * row_bytes_of(segment.dtype, dims[2]);
}

}  // namespace

std::string_view to_string(MoveKind kind) { return kind == MoveKind::kCopy ? "copy" : "convert"; }

Result<BridgePlan> plan_bridge(const StateShape& from, const StateShape& to) {
  BATON_OK(check_shape(from));
  BATON_OK(check_shape(to));
  if (from.segments.size() != to.segments.size()) {
    return fail(Code::kMismatch, fmt::format("bridge: {} segments on one side, {} on the other: not the same model",
                                             from.segments.size(), to.segments.size()));
  }
  BridgePlan plan;
  plan.segments.reserve(from.segments.size());
  for (size_t i = 0; i < from.segments.size(); ++i) {
    const Segment& a = from.segments[i];
    const Segment& b = to.segments[i];
    if (!same_part(a, b)) {
      return fail(Code::kMismatch,
                  fmt::format("bridge: segment {} is {} on one side, {} on the other: not the same model", i,
                              describe(a), describe(b)));
    }
    plan.segments.push_back({a, b.dtype});
  }
  plan.bytes_fixed = section_bytes(from, 0);
  plan.bytes_per_token = bytes_per_token(from);
  return plan;
}

std::string to_text(const BridgePlan& plan) {
  constexpr std::string_view kRow = "{:<20} {:<5} {:<5} {:<10} {:>10}{}\n";
  std::string text = fmt::format(fmt::runtime(kRow), "segment", "from", "to", "move", "bytes", "");
  for (const SegmentPlan& part : plan.segments) {
    const Segment& from = part.from;
    text +=
        fmt::format(fmt::runtime(kRow), segment_name(from.kind, from.layer), to_string(from.dtype), to_string(part.to),
                    to_string(part.kind()), bytes_at_one_token(from), has_tokens_dim(from.kind) ? " per token" : "");
  }
  return text + fmt::format("moved: {} bytes + {} per token\n", plan.bytes_fixed, plan.bytes_per_token);
}

}  // namespace baton
