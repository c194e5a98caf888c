// The rules that a request's head is held to, before any parser of another project reads it: RFC 9110 and 9112 without
// what they let a server forgive. Pure: bytes in, facts or a refusal out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "baton/http/server.h"

namespace baton::http {

// An answer of the server's own; the connection closes behind it.
struct Refusal {
  int status = 400;
  std::string message;
};

inline Refusal bad_request(std::string message) { return {400, std::move(message)}; }

constexpr size_t kHeaderFieldsMax = 128;

// How the rest of a request is to be read, and its answer to be sent.
struct HeadFacts {
  bool http11 = false;
  bool chunked = false;
  bool close = false;  // the client wants no further request
  bool expects_continue = false;
  uint64_t content_length = 0;
};

// `line` without its line end: method, target and version, each well-formed. Fills `http11`.
std::optional<Refusal> check_request_line(std::string_view line, HeadFacts& facts);
// `line` without its line end: a header field, or one of a trailer.
std::optional<Refusal> check_field_line(std::string_view line);
// A whole head with the empty line at its end. Bodies that are announced as too large are refused here.
std::optional<Refusal> check_head(std::string_view head, const Limits& limits, HeadFacts& facts);
// Path and query of a request's target, decoded.
std::optional<Refusal> read_target(std::string_view target, Request& request);

// Of a line: whether it has what cannot be in one; tabs can.
bool has_control(std::string_view line);
// Comparison without regard to case, and what may stand in a token (a method, a header's name).
bool same_word(std::string_view a, std::string_view b);
bool is_token(std::string_view text);
// Without blanks and tabs at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace baton::http
