// Reading the fields of a JSON body one by one, for openai_*.cc: what is wrong is said with the field's name.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/api/openai.h"

namespace baton::openai {

inline tl::unexpected<ApiError> refuse(std::string_view param, std::string message, std::string code = {}) {
  return tl::unexpected(ApiError{.message = std::move(message), .param = std::string(param), .code = std::move(code)});
}

// Refuses fields of `object` that are not among these, null aside.
tl::expected<void, ApiError> only_fields(const Json& object, const std::string& where,
                                         std::initializer_list<std::string_view> names);

// A value for a message: short, and whole characters of ASCII.
std::string shown(const Json& value);

template <size_t kCount>
bool among(const std::string_view (&names)[kCount], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Fields that may be missing or null; keeps the first error. Borrows the body.
class Fields {
 public:
  explicit Fields(const Json& body) : body_(body) {}

  const Json* find(const char* name) const {
    const auto found = body_.find(name);
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }
  void number(const char* name, double least, double most, std::optional<float>& to);
  template <class Int>
  void whole(const char* name, int64_t least, int64_t most, std::optional<Int>& to) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (const auto read = whole_number(*value); read && *read >= least && *read <= most) {
      to = static_cast<Int>(*read);
    } else {
      put(name, fmt::format("'{}' is {}: it takes a whole number from {} to {}", name, shown(*value), least, most));
    }
  }
  void flag(const char* name, bool& to);
  void text(const char* name, size_t bytes_max, std::string& to);
  void stops(std::optional<std::vector<std::string>>& to);
  // Token ids; the vocabulary is looked at later.
  void ids(const char* name, size_t most, std::vector<int32_t>& to);
  // {"id": number, ...}, -100 to 100.
  void biases(const char* name, std::vector<std::pair<int32_t, float>>& to);
  void put(std::string_view param, std::string message, std::string code = {}) {
    if (!error_) error_ = ApiError{.message = std::move(message), .param = std::string(param), .code = std::move(code)};
  }
  const std::optional<ApiError>& error() const { return error_; }

  // Empty: no whole number that fits.
  static std::optional<int64_t> whole_number(const Json& value);

 private:
  const Json& body_;
  std::optional<ApiError> error_;
};

// The messages of a chat, as its template sees them (openai_messages.cc).
tl::expected<Json, ApiError> read_messages(const Json* messages, Reader reader);
// A `prompt` of /v1/completions: a text, or, of a server, tokens.
tl::expected<void, ApiError> read_prompt(const Json* prompt, Reader reader, ApiRequest& to);

}  // namespace baton::openai
