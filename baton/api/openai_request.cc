// Bodies of requests: each field is read, known to change nothing, or refused.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/api/openai_fields.h"

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
  bool served = false;  // a server follows it
};
constexpr Fixed kFixed[] = {{"stream", "[false]", true},
                            {"stream_options", "[]", true},
                            {"n", "[1]", true},
                            {"tools", "[[]]", true},
                            {"tool_choice", R"(["none", "auto"])", true},
                            {"functions", "[]"},
                            {"function_call", "[]"},
                            {"response_format", R"([{"type": "text"}])", true},
                            {"logprobs", "[false]", true},
                            {"top_logprobs", "[0]", true},
                            {"logit_bias", "[{}]", true},
                            {"modalities", R"([["text"]])"},
                            {"audio", "[]"},
                            {"reasoning_effort", "[]", true},
                            {"verbosity", "[]"},
                            {"web_search_options", "[]"},
                            {"best_of", "[1]"},
                            {"echo", "[false]", true},
                            {"suffix", R"([""])"}};
constexpr std::string_view kRead[] = {"max_tokens", "max_completion_tokens", "temperature",       "top_p", "min_p",
                                      "top_k",      "presence_penalty",      "frequency_penalty", "seed",  "stop"};
// Of a server, beside what OpenAI's interface has: of both endpoints, and of one.
constexpr std::string_view kServed[] = {"repetition_penalty", "repeat_penalty", "stop_token_ids",
                                        "ignore_eos",         "regex",          "grammar"};
constexpr std::string_view kServedChat[] = {"chat_template_kwargs"};
constexpr std::string_view kChatOnly[] = {
    "tools", "tool_choice", "top_logprobs", "reasoning_effort", "modalities",
    "audio", "verbosity",   "functions",    "function_call",    "max_completion_tokens"};
constexpr std::string_view kCompletionsOnly[] = {"echo", "suffix", "best_of"};

constexpr int64_t kChoicesMax = 16, kAnswersMax = 128, kLogprobsMax = 20;
constexpr size_t kModelBytesMax = 512, kStopIdsMax = 64, kTemplateFieldsMax = 16;

using Checked = tl::expected<void, ApiError>;

Checked unknown_field(std::string_view name) {
  return refuse(name.substr(0, 80),
                fmt::format("{} is no field of this request: leave it out", shown(Json(name.substr(0, 80)))),
                "unknown_parameter");
}

Checked check_field(std::string_view name, const Json& value, bool chat, Reader reader) {
  const bool server = reader == Reader::kServer;
  if (name == (chat ? "messages" : "prompt") || among(kRead, name) || among(kIgnored, name)) return {};
  if (server && (among(kServed, name) || (chat && among(kServedChat, name)))) return {};
  const auto* fixed =
      std::find_if(std::begin(kFixed), std::end(kFixed), [&](const Fixed& f) { return f.name == name; });
  if (fixed == std::end(kFixed)) return unknown_field(name);
  const bool served = server && fixed->served && !(chat ? among(kCompletionsOnly, name) : among(kChatOnly, name));
  if (value.is_null() || served) return {};
  const Json values = Json::parse(fixed->values);
  if (std::find(values.begin(), values.end(), value) != values.end()) return {};
  return refuse(name,
                fmt::format("'{}' is {}, which is not supported: leave it out{}", name, shown(value),
                            values.empty() ? "" : ", or give " + shown(values.front())),
                "unsupported_parameter");
}

void read_lengths(Fields& fields, int64_t least, ApiRequest& to) {
  std::optional<uint32_t> older;
  fields.whole("max_completion_tokens", least, INT32_MAX, to.tokens_max);
  fields.whole("max_tokens", least, INT32_MAX, older);
  if (older && to.tokens_max && *older != *to.tokens_max)
    fields.put("max_tokens", "'max_tokens' and 'max_completion_tokens' differ: give one of them");
  if (!to.tokens_max) to.tokens_max = older;
}

void read_sampling(Fields& fields, ApiRequest& to) {
  fields.number("temperature", 0, 2, to.temperature);
  fields.number("top_p", 0, 1, to.top_p);
  fields.number("min_p", 0, 1, to.min_p);
  fields.whole("top_k", 0, 1 << 30, to.top_k);
  fields.number("presence_penalty", -2, 2, to.presence_penalty);
  fields.number("frequency_penalty", -2, 2, to.frequency_penalty);
  fields.whole("seed", INT64_MIN, INT64_MAX, to.seed);
  fields.stops(to.stops);
}

void read_stream(Fields& fields, ApiRequest& to) {
  fields.flag("stream", to.stream);
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!to.stream) return fields.put("stream_options", "'stream_options' goes with \"stream\": true");
  if (!options->is_object()) {
    return fields.put("stream_options", fmt::format("'stream_options' is {}: not an object", shown(*options)));
  }
  // The last is of OpenAI's own wires.
  constexpr std::string_view kOptions[] = {"include_usage", "continuous_usage_stats", "include_obfuscation"};
  for (const auto& [name, value] : options->items()) {
    if (among(kOptions, name) && (value.is_boolean() || value.is_null())) continue;
    return fields.put("stream_options", fmt::format("'stream_options' has {}: {}: it takes include_usage and "
                                                    "continuous_usage_stats, true or false",
                                                    shown(Json(name)), shown(value)));
  }
  // Who asks for usage all the time gets it once, at the end.
  const Json usage = options->value("include_usage", Json());
  to.include_usage = (usage.is_null() ? options->value("continuous_usage_stats", Json()) : usage) == true;
}

// A chat has a flag and a number; a completion the number alone.
void read_logprobs(Fields& fields, bool chat, ApiRequest& to) {
  if (!chat) return fields.whole("logprobs", 0, kLogprobsMax, to.logprobs);
  bool wanted = false;
  fields.flag("logprobs", wanted);
  std::optional<uint32_t> top;
  fields.whole("top_logprobs", 0, kLogprobsMax, top);
  if (top.value_or(0) > 0 && !wanted) fields.put("top_logprobs", "'top_logprobs' goes with \"logprobs\": true");
  if (wanted) to.logprobs = top.value_or(0);
}

// Variables of the template: what messages and tools are it does not say.
void read_template_fields(Fields& fields, ApiRequest& to) {
  constexpr std::string_view kTaken[] = {"messages",  "tools",     "add_generation_prompt",
                                         "bos_token", "eos_token", "pad_token"};
  const Json* given = fields.find("chat_template_kwargs");
  if (given == nullptr) return;
  const auto plain = [](const Json& value) {
    return value.is_primitive() && (!value.is_string() || value.get_ref<const std::string&>().size() <= 1024);
  };
  if (!given->is_object() || given->size() > kTemplateFieldsMax)
    return fields.put("chat_template_kwargs",
                      fmt::format("'chat_template_kwargs' is {}: it takes an object of at most {} fields",
                                  shown(*given), kTemplateFieldsMax));
  for (const auto& [name, value] : given->items()) {
    const std::string field = "chat_template_kwargs." + name.substr(0, 80);
    if (among(kTaken, name) || !plain(value)) {
      return fields.put(field, fmt::format("{} is {}: it takes plain values, and none that the server sets itself",
                                           shown(Json(field)), shown(value)));
    }
    if (name == "enable_thinking" && !value.is_null()) {
      if (!value.is_boolean())
        return fields.put(field, fmt::format("'{}' is {}: it takes true or false", field, shown(value)));
      to.thinking = value.get<bool>();
    }
    to.chat.extra[name] = value;
  }
}

// To templates that know it by this name, and to those that only know thinking or none.
void read_effort(Fields& fields, ApiRequest& to) {
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
  const Json* effort = fields.find("reasoning_effort");
  if (effort == nullptr) return;
  if (!effort->is_string() || !among(kEfforts, effort->get_ref<const std::string&>())) {
    return fields.put("reasoning_effort", fmt::format("'reasoning_effort' is {}: it takes none, minimal, low, medium, "
                                                      "high or xhigh",
                                                      shown(*effort)));
  }
  if (!to.thinking) to.thinking = *effort != "none" && *effort != "minimal";
  to.chat.extra["reasoning_effort"] = *effort;
}

// Token ids of a body, once the model is known.
Checked check_ids(int64_t vocab, const ApiRequest& request) {
  const auto check = [&](const char* field, int64_t id) -> Checked {
    if (id >= 0 && id < vocab) return {};
    return refuse(field, fmt::format("'{}' holds the token id {}: the model has {}", field, id, vocab));
  };
  Checked checked;
  for (const Prompt& prompt : request.prompts) {
    if (!prompt.ids) continue;
    for (const int32_t id : *prompt.ids) checked = checked ? check("prompt", id) : checked;
  }
  for (const int32_t id : request.stop_ids) checked = checked ? check("stop_token_ids", id) : checked;
  for (const auto& [id, bias] : request.logit_bias) checked = checked ? check("logit_bias", id) : checked;
  return checked;
}

Checked read_served(Fields& fields, const Json& body, bool chat, ApiRequest& to) {
  fields.text("model", kModelBytesMax, to.model);
  read_stream(fields, to);
  std::optional<uint32_t> choices;
  fields.whole("n", 1, kChoicesMax, choices);
  to.choices = choices.value_or(1);
  if (to.answers() > kAnswersMax) {
    fields.put("n", fmt::format("'n' is {} of each of {} prompts: at most {} answers are made for one request",
                                to.choices, to.prompts.size(), kAnswersMax));
  }
  std::optional<float> repeat;
  fields.number("repetition_penalty", 0.01, 100, to.repeat_penalty);
  fields.number("repeat_penalty", 0.01, 100, repeat);
  if (repeat && to.repeat_penalty && *repeat != *to.repeat_penalty)
    fields.put("repeat_penalty", "'repeat_penalty' and 'repetition_penalty' differ: give one of them");
  if (!to.repeat_penalty) to.repeat_penalty = repeat;
  fields.ids("stop_token_ids", kStopIdsMax, to.stop_ids);
  fields.biases("logit_bias", to.logit_bias);
  fields.flag("ignore_eos", to.ignore_eos);
  read_logprobs(fields, chat, to);
  if (chat) {
    read_template_fields(fields, to);
    read_effort(fields, to);
    if (to.thinking) to.chat.extra["enable_thinking"] = *to.thinking;
  } else {
    fields.flag("echo", to.echo);
  }
  if (fields.error()) return tl::unexpected(*fields.error());
  auto format = read_format(body);
  if (!format) return tl::unexpected(std::move(format).error());
  to.format = *std::move(format);
  return chat ? read_tools(body, to) : Checked();
}

}  // namespace

tl::expected<ApiRequest, ApiError> read_request(Endpoint endpoint, const Json& body, Reader reader) {
  if (!body.is_object()) return refuse("", fmt::format("the body is {}: not an object", shown(body)));
  const bool chat = endpoint == Endpoint::kChat, server = reader == Reader::kServer;
  for (const auto& [name, value] : body.items()) {
    if (auto checked = check_field(name, value, chat, reader); !checked)
      return tl::unexpected(std::move(checked).error());
  }
  ApiRequest request;
  request.endpoint = endpoint;
  Fields fields(body);
  if (chat) {
    auto messages = read_messages(fields.find("messages"), reader);
    if (!messages) return tl::unexpected(std::move(messages).error());
    request.chat.messages = *std::move(messages);
  } else if (auto read = read_prompt(fields.find("prompt"), reader, request); !read) {
    return tl::unexpected(std::move(read).error());
  }
  // A score of a prompt alone has an answer of no tokens.
  read_lengths(fields, server && !chat ? 0 : 1, request);
  read_sampling(fields, request);
  if (server) {
    if (auto read = read_served(fields, body, chat, request); !read) return tl::unexpected(std::move(read).error());
  }
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
  put(repeat_penalty, sampler.repeat_penalty);
  put(stops, to.stops);
  // 0 asks for the likeliest alone, which this share of the sum is too.
  if (top_p) sampler.top_p = std::max(*top_p, std::numeric_limits<float>::min());
  if (seed) sampler.seed = static_cast<uint64_t>(*seed);
  to.request.stop_ids.insert(to.request.stop_ids.end(), stop_ids.begin(), stop_ids.end());
  to.request.ignore_eos |= ignore_eos;
  sampler.logit_bias = logit_bias;
  sampler.logprobs = logprobs;
}

tl::expected<std::vector<int32_t>, ApiError> prompt_tokens(const Runtime& runtime, const ApiRequest& request,
                                                           size_t index) {
  const bool chat = request.endpoint == Endpoint::kChat;
  const std::string field = chat                         ? "messages"
                            : request.prompts.size() > 1 ? fmt::format("prompt[{}]", index)
                                                         : "prompt";
  if (auto ids = check_ids(runtime.model().spec.vocab, request); !ids) return tl::unexpected(std::move(ids).error());
  const auto encode = [&]() -> Result<std::vector<int32_t>> {
    if (chat) return runtime.encode_chat(request.chat);
    const Prompt& prompt = request.prompts.at(index);
    return prompt.ids ? *prompt.ids : runtime.encode(prompt.text, true, TextPlace::kStart);
  };
  auto tokens = encode();
  if (!tokens) return tl::unexpected(api_error(tokens.error(), field));
  if (tokens->empty()) return refuse(field, fmt::format("'{}' has no tokens", field));
  if (const uint64_t context = runtime.context_tokens(); request.context_tokens.value_or(0) > context)
    return refuse("num_ctx", fmt::format("'num_ctx' is {}: the context holds {}", *request.context_tokens, context));
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
