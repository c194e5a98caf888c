// The JSON of a request's body, from whoever sent it: bounded before anything is made of it.
#pragma once

#include <string_view>
#include <tl/expected.hpp>

#include "baton/api/openai.h"

namespace baton::serve {

struct BodyLimits {
  uint32_t nesting = 64;          // levels
  uint32_t fields_max = 1024;     // of one object
  uint64_t values_max = 1 << 20;  // altogether
};

// 400 for what is no JSON, is past the limits, names a field twice, or has NUL in a text. The message says where.
tl::expected<openai::Json, openai::ApiError> parse_body(std::string_view text, const BodyLimits& limits = {});

}  // namespace baton::serve
