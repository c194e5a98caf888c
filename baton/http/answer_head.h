// Heads of answers and frames of their pieces. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "baton/http/server.h"

namespace baton::http {

// How the body of an answer is told apart from what follows it.
enum class Framing : uint8_t { kLength, kChunked, kToClose, kNone };

// Whether answers of this status have no body at all.
bool has_no_body(int status);
// With the empty line at its end. Headers that are the server's are left out of `headers`; what cannot stand in a
// header becomes a blank.
std::string answer_head(int status, const Headers& headers, const std::string& request_id, Framing framing,
                        size_t length, bool close);
std::string chunk_size_line(size_t bytes);

}  // namespace baton::http
