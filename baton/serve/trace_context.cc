// Fields of fixed width; what follows them in versions to come is skipped.
#include "baton/serve/trace_context.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::serve {
namespace {

constexpr size_t kLength = 55;  // of version 00: VV-32 digits-16 digits-FF
constexpr size_t kStateBytesMax = 512, kMembersMax = 32;
constexpr uint8_t kKnownFlags = 3;

bool lower_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool all_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }
int digit_of(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

}  // namespace

std::string TraceContext::response() const { return fmt::format("00-{}-{}-{:02x}", trace_id, span_id, flags); }

std::optional<TraceContext> parse_traceparent(std::string_view value) {
  if (value.size() < kLength || value[2] != '-' || value[35] != '-' || value[52] != '-') return std::nullopt;
  const std::string_view version = value.substr(0, 2), trace = value.substr(3, 32), parent = value.substr(36, 16),
                         flags = value.substr(53, 2);
  for (const std::string_view part : {version, trace, parent, flags}) {
    if (!lower_hex(part)) return std::nullopt;
  }
  if (version == "ff" || all_zero(trace) || all_zero(parent)) return std::nullopt;
  if (value.size() > kLength && (version == "00" || value[kLength] != '-')) return std::nullopt;
  TraceContext context;
  context.trace_id = trace;
  context.parent_id = parent;
  context.flags = static_cast<uint8_t>(digit_of(flags[0]) * 16 + digit_of(flags[1])) & kKnownFlags;
  return context;
}

bool plain_tracestate(std::string_view value) {
  if (value.empty() || value.size() > kStateBytesMax) return false;
  size_t members = 0;
  while (!value.empty()) {
    const size_t comma = std::min(value.find(','), value.size());
    const std::string_view member = value.substr(0, comma);
    value.remove_prefix(std::min(comma + 1, value.size()));
    if (member.find_first_not_of(" \t") == std::string_view::npos) continue;  // an empty one may be there
    const size_t equals = member.find('=');
    const bool printable =
        std::all_of(member.begin(), member.end(), [](char c) { return c == '\t' || (c >= 0x20 && c < 0x7f); });
    if (++members > kMembersMax || equals == std::string_view::npos || equals == 0 || !printable) return false;
  }
  return members > 0;
}

std::optional<TraceContext> trace_of(const http::Request& request, uint64_t random) {
  const std::string* parent = nullptr;
  std::string state;
  for (const auto& [name, value] : request.headers) {
    if (name == "traceparent") {
      if (parent != nullptr) return std::nullopt;
      parent = &value;
    } else if (name == "tracestate" && state.size() <= kStateBytesMax) {
      state += (state.empty() ? "" : ",") + value;
    }
  }
  auto context = parent != nullptr ? parse_traceparent(*parent) : std::nullopt;
  if (!context) return std::nullopt;
  context->span_id = fmt::format("{:016x}", std::max<uint64_t>(random, 1));
  if (plain_tracestate(state)) context->state = std::move(state);
  return context;
}

}  // namespace baton::serve
