// Bodies of /api/chat and /api/generate: https://github.com/ollama/ollama/blob/main/docs/api.md
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "baton/serve/formats/ollama.h"
#include "baton/serve/formats/ollama_models.h"

namespace baton::serve::formats {
namespace {

// As Go writes durations: "1h30m", "250ms", "-1s".
std::optional<double> duration_seconds(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3},
                                                            {"s", 1},     {"m", 60},    {"h", 3600}};
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return 0;
  double sum = 0;
  bool any = false;
  while (!text.empty()) {
    const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string number(text.substr(0, digits));
    if (digits == 0 || digits > 18 || number == "." || std::count(number.begin(), number.end(), '.') > 1)
      return std::nullopt;
    text.remove_prefix(digits);
    const auto* unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const auto& u) {
      return text.starts_with(u.first) && (u.first != "m" || !text.starts_with("ms"));
    });
    if (unit == std::end(kUnits)) return std::nullopt;
    text.remove_prefix(unit->first.size());
    // Not strtod, whose point is the locale's.
    sum += Json::parse(number.starts_with('.') ? "0" + number
                       : number.ends_with('.') ? number + "0"
                                               : number,
                       nullptr, false)
               .get<double>() *
           unit->second;
    any = true;
  }
  return any ? std::optional(negative ? -sum : sum) : std::nullopt;
}

// Ollama's messages name a result's tool, OpenAI's the call.
class OllamaMessages {
 public:
  explicit OllamaMessages(ChatForm& chat) : chat_(chat) {}

  Checked read(const Json& message, const std::string& where) {
    Body body(message, where);
    const std::string role = body.text("role").value_or("");
    const std::string content = body.text("content").value_or("");
    const auto thinking = body.text("thinking");
    const auto tool = body.text("tool_name"), older = body.text("name"), id = body.text("tool_call_id");
    const Json* calls = body.take("tool_calls");
    body.never({"images"}, "no model here sees images, leave it out");
    if (role != "system" && role != "user" && role != "assistant" && role != "tool")
      body.put("role", "takes system, user, assistant or tool");
    if (calls != nullptr && !calls->empty() && role != "assistant") body.put("tool_calls", "is the assistant's alone");
    if (calls != nullptr && !calls->is_array()) body.put("tool_calls", "takes a list");
    if (auto end = body.end(); !end) return end;
    if (role == "tool") return result(content, tool ? *tool : older.value_or(""), id, where);
    if (role == "system") {
      chat_.instructions(content, where);
    } else if (role == "user") {
      chat_.message({{"role", role}, {"content", content}}, where);
    } else {
      Json made = {{"role", role}, {"content", content}};
      if (thinking && !thinking->empty()) made["reasoning_content"] = *thinking;
      chat_.message(std::move(made), where);
    }
    for (size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
      if (auto read = call((*calls)[i], fmt::format("{}.tool_calls[{}]", where, i), where); !read) return read;
    }
    return {};
  }

 private:
  struct Call {
    std::string id, name;
  };

  Checked call(const Json& call, const std::string& at, const std::string& where) {
    Body body(call, at);
    const auto id = body.text("id");
    body.only("type", R"(["function"])");
    const Json* given = body.take("function");
    if (given == nullptr) body.put("function", "is missing: it takes an object");
    if (auto end = body.end(); !end) return end;
    Body function(*given, at + ".function");
    const auto name = function.text("name");
    const Json* arguments = function.take("arguments");
    function.ignore({"index", "description"});
    if (!name) function.put("name", "is missing: it takes the name of a tool");
    if (arguments != nullptr && !arguments->is_object()) function.put("arguments", "takes an object");
    if (auto end = function.end(); !end) return end;
    open_.push_back({id ? *id : fmt::format("call_{}", calls_), *name});
    ++calls_;
    const std::string text = json_line(arguments == nullptr ? Json::object() : *arguments);
    chat_.tool_call(open_.back().id, *name, text, where, at, {});
    return {};
  }

  // Of the first call that has none yet, and is of this tool.
  Checked result(const std::string& content, const std::string& tool, const std::optional<std::string>& id,
                 const std::string& where) {
    const auto found = std::find_if(open_.begin(), open_.end(), [&](const Call& call) {
      return id ? call.id == *id : tool.empty() || call.name == tool;
    });
    if (found == open_.end() && !id) {
      return refusal(where, fmt::format("'{}' is a tool's result, and no call{} before it waits for one", where,
                                        tool.empty() ? "" : " of " + shown_value(Json(tool))));
    }
    Json made = {{"role", "tool"}, {"tool_call_id", id ? *id : found->id}, {"content", content}};
    if (found != open_.end()) open_.erase(found);
    chat_.message(std::move(made), where);
    return {};
  }

  ChatForm& chat_;
  std::vector<Call> open_;  // without a result so far
  size_t calls_ = 0;
};

struct Options {
  std::optional<uint32_t> context;
};

Options read_options(Body& body, ChatForm& chat) {
  Options made;
  const Json* given = body.take("options");
  if (given == nullptr) return made;
  Body options(*given, "options");
  options.ignore({"num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa", "low_vram", "f16_kv",
                  "use_mmap", "use_mlock", "mirostat_tau", "mirostat_eta"});
  options.only("repeat_last_n", "[64]");
  options.only("mirostat", "[0]");
  options.only("tfs_z", "[1]");
  options.only("typical_p", "[1]");
  options.only("penalize_newline", "[true]");
  options.never({"vocab_only", "logits_all", "embedding_only"}, "leave it out");
  if (const auto most = options.whole("num_predict", -2, INT32_MAX); most && *most >= 0) {
    if (*most == 0) options.put("num_predict", "is 0: it takes 1 and more, or -1");
    chat.field("max_completion_tokens", *most, "options.num_predict");
  }
  if (const auto context = options.whole("num_ctx", 1, INT32_MAX)) made.context = static_cast<uint32_t>(*context);
  if (const Json* penalty = options.take("repeat_penalty"); penalty != nullptr)
    chat.field("repetition_penalty", *penalty, "options.repeat_penalty");
  if (const Json* stop = options.take("stop"); stop != nullptr && !stop->empty())
    chat.field("stop", *stop, "options.stop");
  chat.same(options, {"temperature", "top_k", "top_p", "min_p", "seed", "presence_penalty", "frequency_penalty"});
  if (auto end = options.end(); !end) body.put(std::move(end).error());
  return made;
}

void read_answer_format(Body& body, ChatForm& chat) {
  const Json* format = body.take("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    chat.field("response_format", {{"type", "json_object"}}, "format");
  } else if (format->is_object()) {
    chat.field("response_format",
               {{"type", "json_schema"}, {"json_schema", {{"name", "format"}, {"schema", *format}, {"strict", true}}}},
               "format");
  } else {
    body.put("format", fmt::format("is {}: it takes \"json\", or a JSON schema", shown_value(*format)));
  }
}

std::optional<bool> read_think(Body& body) {
  const Json* think = body.take("think");
  if (think == nullptr) return std::nullopt;
  if (think->is_boolean()) return think->get<bool>();
  if (*think == "low" || *think == "medium" || *think == "high") return true;
  body.put("think", fmt::format("is {}: it takes true, false, \"low\", \"medium\" or \"high\"", shown_value(*think)));
  return std::nullopt;
}

// What both have; `body` is taken to its end.
struct Common {
  std::string model;
  bool stream = true;
  std::optional<bool> thinking;
  std::optional<uint32_t> logprobs;
  std::optional<double> keep_alive;
  Options options;
};

Common read_common(Body& body, ChatForm& chat) {
  Common made;
  made.model = without_latest(body.text("model").value_or(""));
  if (made.model.empty()) body.put("model", "is missing: it takes the name of a model");
  made.stream = body.flag("stream").value_or(true);
  made.thinking = read_think(body);
  made.keep_alive = take_keep_alive(body);
  read_answer_format(body, chat);
  made.options = read_options(body, chat);
  const bool logprobs = body.flag("logprobs").value_or(false);
  const auto top = body.whole("top_logprobs", 0, 20);
  if (logprobs) made.logprobs = static_cast<uint32_t>(top.value_or(0));
  if (!logprobs && top && *top > 0) body.put("top_logprobs", "needs 'logprobs': true");
  return made;
}

void put_common(const Common& common, ApiRequest& request) {
  request.model = common.model;
  request.stream = common.stream;
  request.logprobs = common.logprobs;
  request.context_tokens = common.options.context;
  request.keep_alive = common.keep_alive;
  if (common.thinking) set_thinking(request, *common.thinking);
}

// The model alone: it is loaded, or, with keep_alive 0, let go of.
tl::expected<ApiRequest, ApiError> load_request(openai::Endpoint endpoint, const Common& common) {
  ApiRequest request;
  request.endpoint = endpoint;
  put_common(common, request);
  request.load_only = true;
  return request;
}

// A prompt as it is, without the chat template.
tl::expected<ApiRequest, ApiError> read_raw(const std::string& prompt, const ChatForm& chat) {
  Json body = {{"prompt", prompt}};
  // Completions know the older name only.
  for (const auto& [name, value] : chat.fields().items())
    body[name == "max_completion_tokens" ? "max_tokens" : name] = value;
  auto request = openai::read_request(openai::Endpoint::kCompletions, body, openai::Reader::kServer);
  if (!request) return tl::unexpected(renamed(std::move(request).error(), ollama_names(false)));
  return request;
}

}  // namespace

std::optional<double> take_keep_alive(Body& body) {
  const Json* value = body.take("keep_alive");
  if (value == nullptr) return std::nullopt;
  std::optional<double> seconds;
  if (value->is_number()) seconds = value->get<double>();
  if (value->is_string()) seconds = duration_seconds(value->get_ref<const std::string&>());
  if (seconds && std::isfinite(*seconds)) return seconds;
  body.put("keep_alive", fmt::format("is {}: it takes seconds, or a text as \"5m\"", shown_value(*value)));
  return std::nullopt;
}

std::optional<uint32_t> take_options(Body& body) {
  ChatForm chat;
  const Options options = read_options(body, chat);
  chat.message({{"role", "user"}, {"content", ""}}, "input");
  if (auto read = chat.read(ollama_names(true)); !read) body.put(std::move(read).error());
  return options.context;
}

FieldNames ollama_names(bool chat) {
  FieldNames names = {{"num_ctx", "options.num_ctx"},
                      {"max_completion_tokens", "options.num_predict"},
                      {"max_tokens", "options.num_predict"},
                      {"repetition_penalty", "options.repeat_penalty"},
                      {"response_format.json_schema.schema", "format"},
                      {"response_format.json_schema", "format"},
                      {"response_format", "format"}};
  for (const char* name :
       {"temperature", "top_k", "top_p", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty"})
    names.emplace_back(name, fmt::format("options.{}", name));
  if (!chat) names.emplace_back("messages", "prompt");
  return names;
}

tl::expected<ApiRequest, ApiError> read_ollama_chat(const Json& json) {
  Body body(json);
  ChatForm chat;
  const Common common = read_common(body, chat);
  const Json* messages = body.take("messages");
  if (messages != nullptr && !messages->is_array()) body.put("messages", "takes a list of messages");
  OllamaMessages reader(chat);
  for (size_t i = 0; messages != nullptr && i < messages->size() && !body.failed(); ++i) {
    if (auto read = reader.read((*messages)[i], fmt::format("messages[{}]", i)); !read)
      body.put(std::move(read).error());
  }
  if (const Json* tools = body.take("tools"); tools != nullptr && !tools->empty()) chat.field("tools", *tools, "tools");
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
  if (chat.empty()) return load_request(openai::Endpoint::kChat, common);
  auto request = chat.read(ollama_names(true));
  if (request) put_common(common, *request);
  return request;
}

tl::expected<ApiRequest, ApiError> read_ollama_generate(const Json& json) {
  Body body(json);
  ChatForm chat;
  const Common common = read_common(body, chat);
  const std::string prompt = body.text("prompt").value_or("");
  const std::string system = body.text("system").value_or("");
  const bool raw = body.flag("raw").value_or(false);
  body.never({"images"}, "no model here sees images, leave it out");
  body.never({"template"}, "the model's own template is used, or none with 'raw': true");
  body.never({"suffix"}, "no text can be filled in, leave it out");
  body.never({"context"}, "give the conversation to /api/chat");
  body.never({"width", "height", "steps"}, "no model here makes images, leave it out");
  if (raw && !system.empty()) body.put("system", "is for the template, which 'raw' leaves out: give one of them");
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
  const auto endpoint = raw ? openai::Endpoint::kCompletions : openai::Endpoint::kChat;
  if (prompt.empty()) return load_request(endpoint, common);
  if (!system.empty()) chat.instructions(system, "system");
  chat.message({{"role", "user"}, {"content", prompt}}, "prompt");
  auto request = raw ? read_raw(prompt, chat) : chat.read(ollama_names(false));
  if (request) put_common(common, *request);
  return request;
}

Json ollama_error(const ApiError& error) { return {{"error", error.message}}; }

}  // namespace baton::serve::formats
