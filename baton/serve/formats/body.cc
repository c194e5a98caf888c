// Fields of bodies, and their names.
#include "baton/serve/formats/body.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace baton::serve::formats {
namespace {

// Whether `text` is at `name`: it, or it and what it holds.
bool is_or_holds(std::string_view text, std::string_view name) {
  if (!text.starts_with(name)) return false;
  return text.size() == name.size() || text[name.size()] == '.' || text[name.size()] == '[' ||
         text[name.size()] == '\'';
}

const std::pair<std::string, std::string>* name_at(std::string_view text, const FieldNames& names) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const auto& n) { return is_or_holds(text, n.first); });
  return found == names.end() ? nullptr : &*found;
}

bool says_nothing(const Json& value) {
  return value.is_null() || value == false || ((value.is_structured() || value.is_string()) && value.empty()) ||
         value == "";
}

}  // namespace

tl::unexpected<ApiError> refusal(std::string_view field, std::string message, std::string code) {
  return tl::unexpected(ApiError{.message = std::move(message), .param = std::string(field), .code = std::move(code)});
}

std::string shown_value(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

std::string json_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string sse_event(const Json& event) {
  return fmt::format("event: {}\ndata: {}\n\n", event.at("type").get_ref<const std::string&>(), json_line(event));
}

std::string utc_time(int64_t seconds) {
  constexpr int64_t kMost = 253402300799;  // the end of year 9999
  const std::chrono::sys_seconds time{std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kMost))};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date{day};
  const int64_t rest = (time - day).count();
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), rest / 3600,
                     rest / 60 % 60, rest % 60);
}

ApiError renamed(ApiError error, const FieldNames& names) {
  if (const auto* name = name_at(error.param, names); name != nullptr)
    error.param = name->second + error.param.substr(name->first.size());
  std::string message;
  const std::string_view text = error.message;
  for (size_t at = 0; at < text.size(); ++at) {
    message += text[at];
    if (text[at] != '\'') continue;
    const auto* name = name_at(text.substr(at + 1), names);
    if (name == nullptr) continue;
    message += name->second;
    at += name->first.size();
  }
  error.message = std::move(message);
  return error;
}

Body::Body(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object_.is_object()) return;
  const std::string what = path_.empty() ? "the body" : "'" + path_ + "'";
  put(ApiError{.message = fmt::format("{} is {}: it takes an object", what, shown_value(object_)), .param = path_});
}

std::string Body::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void Body::put(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Body::put(const char* name, std::string message) {
  const std::string field = path(name);
  put(ApiError{.message = fmt::format("'{}' {}", field, message), .param = field});
}

const Json* Body::take(const char* name) {
  seen_.emplace_back(name);
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Body::ignore(std::initializer_list<const char*> names) { seen_.insert(seen_.end(), names.begin(), names.end()); }

std::optional<std::string> Body::text(const char* name) {
  const Json* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  put(name, fmt::format("is {}: it takes a text", shown_value(*value)));
  return std::nullopt;
}

std::optional<bool> Body::flag(const char* name) {
  const Json* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  put(name, fmt::format("is {}: it takes true or false", shown_value(*value)));
  return std::nullopt;
}

std::optional<int64_t> Body::whole(const char* name, int64_t least, int64_t most) {
  const Json* value = take(name);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) &&
                    value->get<int64_t>() >= least && value->get<int64_t>() <= most;
  if (fits) return value->get<int64_t>();
  put(name, fmt::format("is {}: it takes a whole number from {} to {}", shown_value(*value), least, most));
  return std::nullopt;
}

void Body::only(const char* name, const char* values) {
  const Json* value = take(name);
  if (value == nullptr) return;
  const Json list = Json::parse(values);
  if (std::find(list.begin(), list.end(), *value) != list.end()) return;
  const std::string field = path(name);
  put(ApiError{.message = fmt::format("'{}' is {}, which is not supported: leave it out{}", field, shown_value(*value),
                                      list.empty() ? "" : ", or give " + shown_value(list.front())),
               .param = field,
               .code = "unsupported_parameter"});
}

void Body::never(std::initializer_list<const char*> names, std::string_view why) {
  for (const char* name : names) {
    const Json* value = take(name);
    if (value == nullptr || says_nothing(*value)) continue;
    const std::string field = path(name);
    put(ApiError{.message = fmt::format("'{}' is not supported: {}", field, why),
                 .param = field,
                 .code = "unsupported_parameter"});
  }
}

Checked Body::end() const {
  if (error_) return tl::unexpected(*error_);
  for (const auto& [name, value] : object_.items()) {
    if (std::find(seen_.begin(), seen_.end(), name) != seen_.end()) continue;
    const std::string field = path(name);
    return refusal(field.size() > 200 ? field.substr(0, 200) : field,
                   fmt::format("{} is no field of this request: leave it out", shown_value(Json(field))),
                   "unknown_parameter");
  }
  return {};
}

tl::expected<std::string, ApiError> joined_text(const Json& content, const std::string& where,
                                                std::span<const std::string_view> types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    return refusal(where, fmt::format("'{}' is {}: it takes a text, or a list of parts", where, shown_value(content)));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string at = fmt::format("{}[{}]", where, i);
    if (!part.is_object()) return refusal(at, fmt::format("'{}' is {}: not an object", at, shown_value(part)));
    const auto type = part.find("type");
    const bool known = type != part.end() && type->is_string() &&
                       std::find(types.begin(), types.end(), type->get<std::string>()) != types.end();
    if (!known) {
      return refusal(at + ".type",
                     fmt::format("'{}.type' is {}: only text is supported, as {{\"type\": \"{}\", \"text\": TEXT}}", at,
                                 type == part.end() ? "missing" : shown_value(*type), types.front()),
                     "unsupported_parameter");
    }
    const auto words = part.find("text");
    if (words == part.end() || !words->is_string())
      return refusal(at + ".text", fmt::format("'{}.text' is missing, or no text", at));
    Body fields(part, at);
    // What answers have beside their texts, and Anthropic's blocks.
    fields.ignore({"type", "text", "annotations", "logprobs", "cache_control", "citations"});
    if (auto end = fields.end(); !end) return tl::unexpected(std::move(end).error());
    text += (i == 0 ? "" : "\n") + words->get<std::string>();
  }
  return text;
}

void set_thinking(ApiRequest& request, bool thinking) {
  request.thinking = thinking;
  request.chat.extra["enable_thinking"] = thinking;
}

}  // namespace baton::serve::formats
