// Compares two layouts segment by segment.
#include "baton/bridge/plan.h"

#include <fmt/format.h>

namespace baton {
namespace {

std::string describe(const SegmentLayout& segment) {
  const std::string rows = has_tokens_dim(segment.kind) ? "n" : fmt::format("{}", segment.dims[1]);
  return fmt::format("{} [{}, {}, {}]", segment_name(segment.kind, segment.layer), segment.dims[0], rows,
                     segment.dims[2]);
}

bool same_part(const SegmentLayout& a, const SegmentLayout& b) {
  return a.kind == b.kind && a.layer == b.layer && dims_at(a, 0) == dims_at(b, 0);
}

MoveKind kind_of(const SegmentLayout& from, const SegmentLayout& to) {
  if (from.dtype != to.dtype) return MoveKind::kConvert;
  return storage_order(from) == storage_order(to) ? MoveKind::kCopy : MoveKind::kTranspose;
}

std::string side(const SegmentLayout& segment) {
  return fmt::format("{:<4} {}", to_string(segment.dtype), storage_order(segment));
}

uint64_t bytes_at_one_token(const SegmentLayout& segment) {
  const Dims dims = dims_at(segment, 1);
  return dims[0] * dims[1] * dims[2] * value_bytes(segment.dtype);
}

}  // namespace

std::string_view to_string(MoveKind kind) {
  switch (kind) {
    case MoveKind::kAlias:
      return "alias";
    case MoveKind::kCopy:
      return "copy";
    case MoveKind::kTranspose:
      return "transpose";
    case MoveKind::kConvert:
      return "convert";
  }
  return "unknown";
}

Result<BridgePlan> plan_bridge(const Layout& from, const Layout& to, bool same_executor) {
  BATON_OK(check_layout(from));
  BATON_OK(check_layout(to));
  if (from.segments.size() != to.segments.size()) {
    return fail(Code::kMismatch, fmt::format("bridge: {} segments on one side, {} on the other: not the same model",
                                             from.segments.size(), to.segments.size()));
  }
  BridgePlan plan;
  plan.segments.reserve(from.segments.size());
  for (size_t i = 0; i < from.segments.size(); ++i) {
    const SegmentLayout& a = from.segments[i];
    const SegmentLayout& b = to.segments[i];
    if (!same_part(a, b)) {
      return fail(Code::kMismatch,
                  fmt::format("bridge: segment {} is {} on one side, {} on the other: not the same model", i,
                              describe(a), describe(b)));
    }
    plan.segments.push_back({i, same_executor ? MoveKind::kAlias : kind_of(a, b), a.dtype, b.dtype});
  }
  plan.bytes_fixed = section_bytes(from, 0);
  plan.bytes_per_token = bytes_per_token(from);
  return plan;
}

std::string to_text(const BridgePlan& plan, const Layout& from, const Layout& to) {
  constexpr std::string_view kRow = "{:<20} {:<26} {:<26} {:<10} {:>10}{}\n";
  std::string text = fmt::format(fmt::runtime(kRow), "segment", "from", "to", "move", "bytes", "");
  for (const SegmentPlan& part : plan.segments) {
    const SegmentLayout& a = from.segments[part.segment];
    text += fmt::format(fmt::runtime(kRow), segment_name(a.kind, a.layer), side(a), side(to.segments[part.segment]),
                        to_string(part.kind), bytes_at_one_token(a), has_tokens_dim(a.kind) ? " per token" : "");
  }
  text += fmt::format("sealed: {} bytes + {} per token\n", plan.bytes_fixed, plan.bytes_per_token);
  return text;
}

}  // namespace baton
