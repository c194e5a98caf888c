// Bodies of requests: each field is read, known to change nothing, or refused.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "baton/api/openai.h"

namespace baton::openai {
namespace {

// Who asks, and how it is billed, kept and sped up.
constexpr std::string_view kIgnored[] = {"model",
                                         "user",
                                         "metadata",
                                         "store",
                                         "service_tier",
                                         "safety_identifier",
                                         "prediction",
                                         "prompt_cache_key",
                                         "prompt_cache_retention",
                                         "parallel_tool_calls"};

// Fields that would change the answer, with the values, as a JSON list, that leave it as it is; null always does.
struct Fixed {
  std::string_view name, values;
};
constexpr Fixed kFixed[] = {{"stream", "[false]"},
                            {"stream_options", "[]"},
                            {"n", "[1]"},
                            {"tools", "[[]]"},
                            {"tool_choice", R"(["none", "auto"])"},
                            {"functions", "[[]]"},
                            {"function_call", R"(["none", "auto"])"},
                            {"response_format", R"([{"type": "text"}])"},
                            {"logprobs", "[false]"},
                            {"top_logprobs", "[0]"},
                            {"logit_bias", "[{}]"},
                            {"modalities", R"([["text"]])"},
                            {"audio", "[]"},
                            {"reasoning_effort", "[]"},
                            {"verbosity", "[]"},
                            {"web_search_options", "[]"},
                            {"best_of", "[1]"},
                            {"echo", "[false]"},
                            {"suffix", R"([""])"}};
constexpr std::string_view kRead[] = {"max_tokens", "max_completion_tokens", "temperature",       "top_p", "min_p",
                                      "top_k",      "presence_penalty",      "frequency_penalty", "seed",  "stop"};

tl::unexpected<ApiError> refuse(std::string_view param, std::string message, std::string code = {}) {
  return tl::unexpected(ApiError{.message = std::move(message), .param = std::string(param), .code = std::move(code)});
}

// A value for a message: short, and whole characters of ASCII.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

template <size_t kCount>
bool among(const std::string_view (&names)[kCount], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

using Checked = tl::expected<void, ApiError>;

Checked check_field(std::string_view name, const Json& value, std::string_view prompt) {
  if (name == prompt || among(kRead, name) || among(kIgnored, name)) return {};
  const auto* fixed =
      std::find_if(std::begin(kFixed), std::end(kFixed), [&](const Fixed& f) { return f.name == name; });
  if (fixed == std::end(kFixed))
    return refuse(name, fmt::format("'{}' is no field of this request: leave it out", name), "unknown_parameter");
  if (value.is_null()) return {};
  const Json values = Json::parse(fixed->values);
  if (std::find(values.begin(), values.end(), value) != values.end()) return {};
  return refuse(name,
                fmt::format("'{}' is {}, which is not supported: leave it out{}", name, shown(value),
                            values.empty() ? "" : ", or give " + shown(values.front())),
                "unsupported_parameter");
}

// Reads fields that may be missing or null; keeps the first error.
class Fields {
 public:
  explicit Fields(const Json& body) : body_(body) {}

  const Json* find(const char* name) const {
    const auto found = body_.find(name);
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }
  void number(const char* name, double least, double most, std::optional<float>& to) {
    const Json* value = find(name);
    if (value == nullptr) return;
    const double read = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (read >= least && read <= most) {
      to = static_cast<float>(read);
    } else {
      put(name, fmt::format("'{}' is {}: it takes a number from {} to {}", name, shown(*value), least, most));
    }
  }
  template <class Int>
  void whole(const char* name, int64_t least, int64_t most, std::optional<Int>& to) {
    const Json* value = find(name);
    if (value == nullptr) return;
    const bool fits = value->is_number_integer() &&
                      !(value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) &&
                      value->get<int64_t>() >= least && value->get<int64_t>() <= most;
    if (fits) {
      to = static_cast<Int>(value->get<int64_t>());
    } else {
      put(name, fmt::format("'{}' is {}: it takes a whole number from {} to {}", name, shown(*value), least, most));
    }
  }
  void stops(std::optional<std::vector<std::string>>& to) {
    const Json* value = find("stop");
    if (value == nullptr) return;
    const Json list = value->is_string() ? Json::array({*value}) : *value;
    const auto good = [](const Json& stop) {
      return stop.is_string() && !stop.get_ref<const std::string&>().empty() &&
             stop.get_ref<const std::string&>().size() <= StopStrings::kBytesMax;
    };
    if (list.is_array() && list.size() <= StopStrings::kStringsMax && std::all_of(list.begin(), list.end(), good)) {
      to = list.get<std::vector<std::string>>();
    } else {
      put("stop", fmt::format("'stop' is {}: it takes a text of 1 to {} bytes, or a list of at most {}", shown(*value),
                              StopStrings::kBytesMax, StopStrings::kStringsMax));
    }
  }
  void put(std::string_view param, std::string message) {
    if (!error_) error_ = ApiError{.message = std::move(message), .param = std::string(param)};
  }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json& body_;
  std::optional<ApiError> error_;
};

// A text, or parts that are all texts: these are joined by newlines.
tl::expected<std::string, ApiError> content_text(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array() || content.empty())
    return refuse(where, fmt::format("'{}' is {}: it takes a text, or a list of parts", where, shown(content)));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string part_name = fmt::format("{}[{}]", where, i);
    if (!part.is_object() || !part.contains("text") || !part["text"].is_string() ||
        part.value("type", Json()) != "text")
      return refuse(part_name, fmt::format("'{}' is {}: only parts of type text are supported, as "
                                           "{{\"type\": \"text\", \"text\": TEXT}}",
                                           part_name, shown(part)));
    text += (i == 0 ? "" : "\n") + part["text"].get<std::string>();
  }
  return text;
}

tl::expected<Json, ApiError> read_message(const Json& message, const std::string& where) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant"};
  if (!message.is_object()) return refuse(where, fmt::format("'{}' is {}: not an object", where, shown(message)));
  const Json role = message.value("role", Json());
  if (!role.is_string() || !among(kRoles, role.get<std::string>())) {
    return refuse(where + ".role",
                  fmt::format("'{}.role' is {}: it takes system, developer, user or assistant", where, shown(role)));
  }
  Json made = {{"role", role == "developer" ? Json("system") : role}};
  auto content = content_text(message.value("content", Json()), where + ".content");
  if (!content) return tl::unexpected(std::move(content).error());
  made["content"] = *std::move(content);
  for (const auto& [name, value] : message.items()) {
    if (name == "role" || name == "content" || value.is_null()) continue;
    if ((name == "tool_calls" || name == "annotations") && value == Json::array()) continue;
    if ((name != "name" && name != "reasoning_content") || !value.is_string()) {
      const std::string field = fmt::format("{}.{}", where, name);
      return refuse(field, fmt::format("'{}' is {}, which is not supported: leave it out", field, shown(value)),
                    "unsupported_parameter");
    }
    made[name] = value;
  }
  return made;
}

tl::expected<Json, ApiError> read_messages(const Json* messages) {
  if (messages == nullptr || !messages->is_array() || messages->empty())
    return refuse("messages", "'messages' is missing: it takes a list of at least one message");
  Json made = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    auto message = read_message((*messages)[i], fmt::format("messages[{}]", i));
    if (!message) return tl::unexpected(std::move(message).error());
    made.push_back(*std::move(message));
  }
  return made;
}

}  // namespace

tl::expected<ApiRequest, ApiError> read_request(Endpoint endpoint, const Json& body, Reader /*reader*/) {
  if (!body.is_object()) return refuse("", fmt::format("the body is {}: not an object", shown(body)));
  const bool chat = endpoint == Endpoint::kChat;
  for (const auto& [name, value] : body.items()) {
    if (auto checked = check_field(name, value, chat ? "messages" : "prompt"); !checked)
      return tl::unexpected(std::move(checked).error());
  }
  ApiRequest request;
  request.endpoint = endpoint;
  Fields fields(body);
  if (chat) {
    auto messages = read_messages(fields.find("messages"));
    if (!messages) return tl::unexpected(std::move(messages).error());
    request.chat.messages = *std::move(messages);
  } else if (const Json* prompt = fields.find("prompt"); prompt != nullptr && prompt->is_string()) {
    request.prompt = prompt->get<std::string>();
  } else {
    return refuse("prompt", "'prompt' is missing, or no text: it takes one text");
  }
  std::optional<uint32_t> older;
  fields.whole("max_completion_tokens", 1, INT32_MAX, request.tokens_max);
  fields.whole("max_tokens", 1, INT32_MAX, older);
  if (older && request.tokens_max && *older != *request.tokens_max)
    fields.put("max_tokens", "'max_tokens' and 'max_completion_tokens' differ: give one of them");
  if (!request.tokens_max) request.tokens_max = older;
  fields.number("temperature", 0, 2, request.temperature);
  fields.number("top_p", 0, 1, request.top_p);
  fields.number("min_p", 0, 1, request.min_p);
  fields.whole("top_k", 0, 1 << 30, request.top_k);
  fields.number("presence_penalty", -2, 2, request.presence_penalty);
  fields.number("frequency_penalty", -2, 2, request.frequency_penalty);
  fields.whole("seed", INT64_MIN, INT64_MAX, request.seed);
  fields.stops(request.stops);
  if (fields.error()) return tl::unexpected(*fields.error());
  return request;
}

void ApiRequest::apply(CompletionRequest& to) const {
  SamplerParams& sampler = to.request.sampler;
  const auto put = [](const auto& given, auto& field) {
    if (given) field = *given;
  };
  put(tokens_max, to.request.max_new_tokens);
  put(temperature, sampler.temperature);
  put(min_p, sampler.min_p);
  put(top_k, sampler.top_k);
  put(presence_penalty, sampler.presence_penalty);
  put(frequency_penalty, sampler.frequency_penalty);
  put(stops, to.stops);
  // 0 asks for the likeliest alone, which this share of the sum is too.
  if (top_p) sampler.top_p = std::max(*top_p, std::numeric_limits<float>::min());
  if (seed) sampler.seed = static_cast<uint64_t>(*seed);
}

tl::expected<std::vector<int32_t>, ApiError> prompt_tokens(const Runtime& runtime, const ApiRequest& request) {
  const bool chat = request.endpoint == Endpoint::kChat;
  const char* field = chat ? "messages" : "prompt";
  auto tokens = chat ? runtime.encode_chat(request.chat) : runtime.encode(request.prompt, true, TextPlace::kStart);
  if (!tokens) return tl::unexpected(api_error(tokens.error(), field));
  if (tokens->empty()) return refuse(field, fmt::format("'{}' has no tokens", field));
  if (const uint64_t context = runtime.context_tokens(); tokens->size() > context) {
    return refuse(field,
                  fmt::format("'{}' has {} tokens, the context holds {}: shorten it", field, tokens->size(), context),
                  "context_length_exceeded");
  }
  return *std::move(tokens);
}

std::vector<uint64_t> branching_positions(const Runtime& runtime, const ChatInput& chat,
                                          const std::vector<int32_t>& tokens) {
  std::vector<uint64_t> positions;
  const Json& messages = chat.messages;
  if (messages.empty()) return positions;
  // The same chat, but for what is said from message `from` on.
  const auto part_at = [&](size_t from) {
    ChatInput other = chat;
    other.messages.erase(other.messages.begin() + static_cast<ptrdiff_t>(from), other.messages.end());
    const bool same = messages[from]["content"].get<std::string>().starts_with('x');
    other.messages.push_back(
        {{"role", from + 1 == messages.size() ? messages[from]["role"] : Json("user")}, {"content", same ? "0" : "x"}});
    const auto probe = runtime.encode_chat(other);
    if (!probe) return;  // a template that wants its chats otherwise
    const auto parts = std::mismatch(tokens.begin(), tokens.end(), probe->begin(), probe->end()).first;
    positions.push_back(static_cast<uint64_t>(parts - tokens.begin()));
  };
  part_at(messages.size() - 1);
  if (messages.size() > 2 && messages[0]["role"] == "system") part_at(1);
  return positions;
}

}  // namespace baton::openai
