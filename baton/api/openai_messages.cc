// What is to be answered: messages of a chat, or a prompt.
#include "baton/api/openai_fields.h"

namespace baton::openai {
namespace {

constexpr size_t kMessagesMax = 16'384;  // of a server
constexpr size_t kPromptIdsMax = size_t{1} << 20, kPromptsMax = 64;

// By what was asked for, not by what it is not.
std::string media_remedy(const Json& type) {
  const std::string name = type.is_string() ? type.get<std::string>() : "";
  const char* kind = name == "image_url" || name == "image" || name == "input_image" ? "images are"
                     : name == "input_audio" || name == "audio"                      ? "audio is"
                     : name == "video_url" || name == "video"                        ? "video is"
                     : name == "file" || name == "input_file" || name == "document"  ? "files are"
                                                                                     : nullptr;
  if (kind == nullptr) return R"(only parts of type text are supported, as {"type": "text", "text": TEXT})";
  return fmt::format(
      "{} not supported, by no model here: only parts of type text are, as "
      R"({{"type": "text", "text": TEXT}})",
      kind);
}

// A text, or parts that are all texts: these are joined by newlines.
tl::expected<std::string, ApiError> content_text(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array() || content.empty())
    return refuse(where, fmt::format("'{}' is {}: it takes a text, or a list of parts", where, shown(content)));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string part_name = fmt::format("{}[{}]", where, i);
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    if (!part.is_object() || !part.contains("text") || !part["text"].is_string() || type != "text")
      return refuse(part_name, fmt::format("'{}' is {}: {}", part_name, shown(part), media_remedy(type)),
                    type.is_string() && type != "text" ? "unsupported_content" : "");
    if (auto known = only_fields(part, part_name, {"type", "text"}); !known)
      return tl::unexpected(std::move(known).error());
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

// A message that calls tools, or says what one gave.
bool is_of_tools(const Json& message) {
  if (!message.is_object()) return false;
  if (message.value("role", Json()) == "tool") return true;
  const auto calls = message.find("tool_calls");
  return calls != message.end() && !calls->is_null() && *calls != Json::array();
}

}  // namespace

tl::expected<Json, ApiError> read_messages(const Json* messages, Reader reader) {
  const bool server = reader == Reader::kServer;
  if (messages == nullptr || !messages->is_array() || messages->empty())
    return refuse("messages", "'messages' is missing or empty: it takes a list of at least one message");
  if (server && messages->size() > kMessagesMax)
    return refuse("messages", fmt::format("'messages' has {}: at most {}", messages->size(), kMessagesMax));
  Json made = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    const Json& message = (*messages)[i];
    const std::string where = fmt::format("messages[{}]", i);
    auto read = server && is_of_tools(message) ? read_tool_message(message, where) : read_message(message, where);
    if (!read) return tl::unexpected(std::move(read).error());
    made.push_back(*std::move(read));
  }
  return made;
}

namespace {

tl::expected<void, ApiError> read_one(const Json& prompt, ApiRequest& to) {
  if (prompt.is_string()) {
    to.prompts.push_back({prompt.get<std::string>(), std::nullopt});
    return {};
  }
  std::vector<int32_t> ids;
  const Json body = {{"prompt", prompt}};
  Fields fields(body);
  fields.ids("prompt", kPromptIdsMax, ids);
  if (fields.error()) return tl::unexpected(*fields.error());
  to.prompts.push_back({{}, std::move(ids)});
  return {};
}

}  // namespace

tl::expected<void, ApiError> read_prompt(const Json* prompt, Reader reader, ApiRequest& to) {
  if (prompt != nullptr && prompt->is_string()) return read_one(*prompt, to);
  if (reader == Reader::kBatch || prompt == nullptr || !prompt->is_array() || prompt->empty()) {
    return refuse("prompt", reader == Reader::kBatch
                                ? "'prompt' is missing, or no text: it takes one text"
                                : "'prompt' is missing or empty: it takes a text, a list of token ids, or a list of "
                                  "either");
  }
  if (!prompt->front().is_string() && !prompt->front().is_array()) return read_one(*prompt, to);
  if (prompt->size() > kPromptsMax) {
    return refuse("prompt", fmt::format("'prompt' holds {} prompts: it takes at most {}", prompt->size(), kPromptsMax));
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& one = (*prompt)[i];
    if ((!one.is_string() && !one.is_array()) || (one.is_array() && one.empty())) {
      return refuse("prompt", fmt::format("'prompt[{}]' is {}: a list of prompts holds texts, or lists of token ids", i,
                                          shown(one)));
    }
    if (auto read = read_one(one, to); !read) return read;
  }
  return {};
}

}  // namespace baton::openai
