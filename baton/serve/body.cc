// Two passes: over the bytes, which bounds the tree, and the parser's.
#include "baton/serve/body.h"

#include <fmt/format.h>

#include <string>
#include <unordered_set>
#include <vector>

namespace baton::serve {
namespace {

using openai::ApiError;
using openai::Json;

ApiError bad_body(std::string message) { return {.message = std::move(message), .code = "invalid_json"}; }

// Where a text ends: behind its closing quote, or at the end.
size_t end_of_text(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at;
}

tl::expected<void, ApiError> check_bounds(std::string_view text, const BodyLimits& limits) {
  std::vector<uint32_t> fields;  // of each open object or list
  uint64_t values = 1;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_text(text, at);
    } else if (c == '{' || c == '[') {
      if (fields.size() == limits.nesting)
        return tl::unexpected(bad_body(fmt::format("byte {}: more than {} levels of nesting", at, limits.nesting)));
      fields.push_back(0);
      ++values;
    } else if ((c == '}' || c == ']') && !fields.empty()) {
      fields.pop_back();
    } else if (c == ':' && !fields.empty() && ++fields.back() > limits.fields_max) {
      return tl::unexpected(bad_body(fmt::format("byte {}: more than {} fields in one object", at, limits.fields_max)));
    } else if (c == ',') {
      ++values;
    }
    if (values > limits.values_max)
      return tl::unexpected(bad_body(fmt::format("byte {}: more than {} values", at, limits.values_max)));
  }
  return {};
}

// What the parser lets pass.
class Watch {
 public:
  bool operator()(int /*depth*/, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start) names_.emplace_back();
    if (event == Event::object_end && !names_.empty()) names_.pop_back();
    const bool text = (event == Event::value || event == Event::key) && parsed.is_string();
    if (text && parsed.get_ref<const std::string&>().find('\0') != std::string::npos) put("a text holds NUL (\\u0000)");
    if (event == Event::key && text && !names_.empty()) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names_.back().insert(name).second)
        put(fmt::format("the field {} is given twice",
                        Json(name.substr(0, 80)).dump(-1, ' ', true, Json::error_handler_t::replace)));
    }
    return true;
  }
  const std::string& problem() const { return problem_; }

 private:
  void put(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  std::vector<std::unordered_set<std::string>> names_;
  std::string problem_;
};

}  // namespace

tl::expected<Json, ApiError> parse_body(std::string_view text, const BodyLimits& limits) {
  if (text.empty()) return tl::unexpected(bad_body("the body is empty: it takes a JSON object"));
  if (text.starts_with("\xEF\xBB\xBF"))
    return tl::unexpected(bad_body("the body begins with a byte order mark: leave it out"));
  if (auto bounded = check_bounds(text, limits); !bounded) return tl::unexpected(std::move(bounded).error());
  try {
    Watch watch;
    Json body = Json::parse(text.begin(), text.end(), std::ref(watch));
    if (!watch.problem().empty()) return tl::unexpected(bad_body("the body: " + watch.problem()));
    if (!body.is_object()) return tl::unexpected(bad_body("the body is no JSON object"));
    return body;
  } catch (const Json::parse_error& error) {
    return tl::unexpected(bad_body(fmt::format("the body is no JSON in UTF-8: it goes wrong at byte {}", error.byte)));
  } catch (const Json::exception&) {
    return tl::unexpected(bad_body("the body holds a number that is too large"));
  }
}

}  // namespace baton::serve
