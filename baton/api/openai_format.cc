// `response_format`, and the extensions `regex` and `grammar`.
#include "baton/api/openai_fields.h"

namespace baton::openai {

tl::expected<AnswerFormat, ApiError> read_format(const Json& body) {
  for (const char* name : {"response_format", "regex", "grammar"}) {
    const auto found = body.find(name);
    if (found == body.end() || found->is_null() || *found == Json{{"type", "text"}}) continue;
    return refuse(name, fmt::format("'{}' is not supported: leave it out", name), "unsupported_parameter");
  }
  return AnswerFormat();
}

}  // namespace baton::openai
