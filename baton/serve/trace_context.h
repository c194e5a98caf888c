// W3C Trace Context: which trace a request belongs to (https://www.w3.org/TR/trace-context/). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "baton/http/server.h"

namespace baton::serve {

struct TraceContext {
  std::string trace_id;   // 32 lower-case hex digits, not all zero
  std::string parent_id;  // 16 of these: the span of who asked
  std::string span_id;    // 16 of these: ours
  uint8_t flags = 0;      // sampled (1) and random (2), as they came
  std::string state;      // tracestate, all its fields joined; empty: none, or none that can be kept

  // What answers say: "00-TRACE-SPAN-FLAGS".
  std::string response() const;
};

// Of a traceparent's value. std::nullopt: it is not as the specification has it, and counts as none.
std::optional<TraceContext> parse_traceparent(std::string_view value);
// Whether a tracestate, fields joined by ',', is kept: 1 to 512 printable characters and 32 members of key=value.
bool plain_tracestate(std::string_view value);
// Of a request; std::nullopt without a traceparent, or with several. `random`: of the span.
std::optional<TraceContext> trace_of(const http::Request& request, uint64_t random);

}  // namespace baton::serve
