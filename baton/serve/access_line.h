// What is said of one request once its answer has ended, and how: docs/server.md has the fields.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "baton/http/server.h"
#include "baton/serve/trace_context.h"

namespace baton::serve {

enum class AccessFormat : uint8_t { kText, kJson };

// Texts are cut where they are put in (`cut`), and escaped where they are written.
struct AccessLine {
  int64_t time_ms = 0;  // since 1970: when the request had come
  std::string request_id, client, method, path, key, model, answer_id;
  std::optional<TraceContext> trace;
  http::Ended ended;
  // Of requests for an answer.
  std::optional<uint64_t> prompt_tokens, cached_tokens, answer_tokens;
  std::string finish, prefill_unit, decode_unit;
  std::optional<double> queue_ms, ttft_ms;
  std::optional<bool> emulated;       // a unit of these is, and with it the times
  std::optional<std::string> prompt;  // only where it was asked for

  // One line, with its end: no control character in it, no other line end, whatever the fields hold.
  std::string text(AccessFormat format) const;
};

inline constexpr size_t kAccessTextBytesMax = 256, kAccessPromptBytesMax = 2048;
// At most so many bytes, no half character; "..." shows that it was more.
std::string cut(std::string_view text, size_t bytes_max = kAccessTextBytesMax);
// RFC 3339 with milliseconds: "2026-01-31T07:08:09.123Z".
std::string time_text(int64_t ms);

}  // namespace baton::serve
