// Bodies of other interfaces, taken apart field by field and put together again as a chat of OpenAI's, whose reader
// knows the limits of all that is common. An error names the field that the client wrote.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "baton/api/openai.h"

namespace baton::serve::formats {

using openai::ApiError;
using openai::ApiRequest;
using openai::Json;
using Checked = tl::expected<void, ApiError>;

tl::unexpected<ApiError> refusal(std::string_view field, std::string message, std::string code = {});
// A value for a message: short, and whole characters of ASCII.
std::string shown_value(const Json& value);
// One line of JSON; what is no UTF-8 becomes U+FFFD.
std::string json_line(const Json& value);
// A server-sent event, named as its field "type" says.
std::string sse_event(const Json& event);
// Seconds since 1970 as "2026-01-31T09:05:00Z".
std::string utc_time(int64_t seconds);

// Names of fields and of what stands there in the client's body, more special ones first.
using FieldNames = std::vector<std::pair<std::string, std::string>>;
// `param`, and the names in quotes of the message: those of `names`, and what begins with them and '.' or '['.
ApiError renamed(ApiError error, const FieldNames& names);

// The fields of one object. Each that may be given is taken or ignored; `end` refuses the others. The first error is
// kept, and what is taken after it does not matter. Null is as if it were not given.
class Body {
 public:
  // `path`: of the object in the body, "" for the body itself.
  explicit Body(const Json& object, std::string path = {});

  const Json* take(const char* name);
  void ignore(std::initializer_list<const char*> names);
  std::optional<std::string> text(const char* name);
  std::optional<bool> flag(const char* name);
  std::optional<int64_t> whole(const char* name, int64_t least, int64_t most);
  // Known fields that cannot be followed but for these values, a JSON list.
  void only(const char* name, const char* values);
  // Known fields that cannot be followed: any value but null, [], {}, "" and false.
  void never(std::initializer_list<const char*> names, std::string_view why);

  void put(ApiError error);
  void put(const char* name, std::string message);  // `message` goes on behind the field's name in quotes
  bool failed() const { return error_.has_value(); }
  std::string path(std::string_view name) const;  // of a field, from the body on
  Checked end() const;

 private:
  const Json& object_;
  std::string path_;
  std::vector<std::string_view> seen_;
  std::optional<ApiError> error_;
};

// What a chat of OpenAI's is put together of.
class ChatForm {
 public:
  // `own`: what the client calls it.
  void field(const char* name, Json value, std::string own);
  // The same field in both; null and missing ones are left out.
  void same(Body& body, std::initializer_list<const char*> names);
  // What /v1/chat/completions has, and neither OpenAI's Responses nor Anthropic's Messages: taken there by these names.
  void extensions(Body& body);
  // `parts`: of its fields, what they are called behind `own`.
  void message(Json message, const std::string& own, const FieldNames& parts = {});
  // To the assistant's message that was added last, or to a new one.
  void tool_call(const std::string& id, const std::string& name, const std::string& arguments, const std::string& own,
                 const std::string& own_call, const FieldNames& parts);
  void tool(Json tool, const std::string& own, const FieldNames& parts);
  void reasoning(const std::string& text, const std::string& own);
  void assistant_text(const std::string& text, const std::string& own);  // to the reasoning in front of it, if any
  void instructions(const std::string& text,
                    const std::string& own);  // joined to a system message in front, if one is last
  bool empty() const { return messages_.empty(); }
  const Json& fields() const { return fields_; }

  // `late`: names of fields that may only fail later.
  tl::expected<ApiRequest, ApiError> read(const FieldNames& late) const;

 private:
  Json& assistant(const std::string& own);
  // What the client calls what is `here`, and parts of it.
  void called(const std::string& here, const std::string& own, const FieldNames& parts);
  bool may_be_said_more() const;  // the last message is an assistant's that has only thought

  Json fields_ = Json::object(), messages_ = Json::array();
  FieldNames names_;
};

// A text, or a list of parts {"type": T, "text": TEXT} of one of these types, joined by newlines. `what` says in the
// error what it takes.
tl::expected<std::string, ApiError> joined_text(const Json& content, const std::string& where,
                                                std::span<const std::string_view> types);
// `enable_thinking`, for the template too.
void set_thinking(ApiRequest& request, bool thinking);

}  // namespace baton::serve::formats
