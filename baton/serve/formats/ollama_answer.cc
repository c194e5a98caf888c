// Answers of /api/chat and /api/generate.
#include <cmath>

#include "baton/serve/formats/ollama.h"

namespace baton::serve::formats {
namespace {

uint64_t nanoseconds(double ms) { return ms > 0 ? static_cast<uint64_t>(std::llround(ms * 1e6)) : 0; }

class OllamaWriter : public AnswerWriter {
 public:
  OllamaWriter(const ApiRequest& request, bool chat) : request_(request), chat_(chat) {}

  std::string content_type() const override { return request_.stream ? "application/x-ndjson" : "application/json"; }

  std::string begin(const AnswerHead& head) override {
    head_ = head;
    return {};
  }

  std::string part(uint32_t /*choice*/, const AnswerPart& part, const std::vector<ShownLogprob>& logprobs) override {
    std::string out;
    if (part.kind != AnswerPart::Kind::kToolArguments) out = end_call();
    for (const ShownLogprob& one : logprobs) logprobs_.push_back(logprob(one));
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        text_ += part.text;
        return out + piece(part.text, {});
      case AnswerPart::Kind::kReasoning:
        thinking_ += part.text;
        return out + piece({}, part.text);
      case AnswerPart::Kind::kToolCall:
        in_call_ = true;
        call_name_ = part.name;
        call_arguments_ = part.text;
        return out;
      case AnswerPart::Kind::kToolArguments:
        call_arguments_ += part.text;
        return out;
    }
    return out;
  }

  std::string end_choice(uint32_t /*choice*/, const ChoiceEnd& end) override {
    finish_ = end.finish;
    return end_call();
  }

  std::string end(const AnswerTail& tail) override {
    Json made = request_.stream ? line(said({}, {})) : line(said(text_, thinking_));
    if (!request_.stream && !calls_.empty()) made["message"]["tool_calls"] = calls_;
    if (!logprobs_.empty()) made["logprobs"] = std::move(logprobs_);
    made["done"] = true;
    made["done_reason"] = reason();
    made["total_duration"] = nanoseconds(tail.total_ms);
    made["load_duration"] = nanoseconds(tail.load_ms);
    if (!request_.load_only) {
      made["prompt_eval_count"] = tail.prompt_tokens;
      made["prompt_eval_duration"] = nanoseconds(tail.prefill_ms);
      made["eval_count"] = tail.completion_tokens;
      made["eval_duration"] = nanoseconds(tail.decode_ms);
    }
    if (!tail.baton.is_null()) made["baton"] = tail.baton;
    return json_line(made) + (request_.stream ? "\n" : "");
  }

  std::string error(const ApiError& error) override {
    return json_line(ollama_error(renamed(error, ollama_names(chat_)))) + "\n";
  }

  std::string keep_alive() const override { return {}; }  // each line is an object

 private:
  static Json logprob(const ShownLogprob& shown) {
    Json made = {{"token", shown.token}, {"logprob", shown.logprob}, {"bytes", shown.bytes}};
    if (!shown.top.empty()) made["top_logprobs"] = Json::array();
    for (const ShownLogprob& top : shown.top)
      made["top_logprobs"].push_back({{"token", top.token}, {"logprob", top.logprob}, {"bytes", top.bytes}});
    return made;
  }
  const char* reason() const {
    if (request_.load_only) return request_.keep_alive == 0.0 ? "unload" : "load";
    switch (finish_) {
      case Finish::kLength:
        return "length";
      case Finish::kCancelled:
        return "cancelled";
      default:
        return "stop";
    }
  }

  // Of an answer, or a piece of it, what carries the text.
  Json said(const std::string& text, const std::string& thinking) const {
    Json made = Json::object();
    if (chat_) made["role"] = "assistant";
    made[chat_ ? "content" : "response"] = text;
    if (!thinking.empty()) made["thinking"] = thinking;
    return made;
  }
  Json line(Json said) const {
    Json made = {{"model", head_.model}, {"created_at", utc_time(head_.created)}};
    if (chat_) {
      made["message"] = std::move(said);
    } else {
      made.update(said);
    }
    made["done"] = false;
    return made;
  }
  std::string send(Json line) {
    if (!request_.stream) return {};
    if (!logprobs_.empty()) line["logprobs"] = std::move(logprobs_);
    logprobs_ = Json::array();
    return json_line(line) + "\n";
  }
  std::string piece(const std::string& text, const std::string& thinking) {
    if (text.empty() && thinking.empty() && logprobs_.empty()) return {};
    return send(line(said(text, thinking)));
  }

  // A call is told of when it is whole; what was cut off is no call.
  std::string end_call() {
    if (!in_call_) return {};
    in_call_ = false;
    Json arguments = Json::parse(call_arguments_, nullptr, false);
    if (!arguments.is_object() || !chat_) return {};
    Json call = {{"function", {{"index", calls_.size()}, {"name", call_name_}, {"arguments", std::move(arguments)}}}};
    calls_.push_back(call);
    Json made = line(said({}, {}));
    made["message"]["tool_calls"] = Json::array({std::move(call)});
    return send(std::move(made));
  }

  const ApiRequest& request_;
  const bool chat_;
  AnswerHead head_;
  std::string text_, thinking_;
  Json calls_ = Json::array(), logprobs_ = Json::array();  // the latter of what was not sent yet
  bool in_call_ = false;
  std::string call_name_, call_arguments_;
  Finish finish_ = Finish::kStop;
};

class Ollama : public Protocol {
 public:
  explicit constexpr Ollama(bool chat) : chat_(chat) {}
  tl::expected<ApiRequest, ApiError> read(const Json& body) const override {
    return chat_ ? read_ollama_chat(body) : read_ollama_generate(body);
  }
  std::unique_ptr<AnswerWriter> writer(const ApiRequest& request) const override {
    return std::make_unique<OllamaWriter>(request, chat_);
  }
  Json error_body(const ApiError& error) const override { return ollama_error(renamed(error, ollama_names(chat_))); }

 private:
  bool chat_;
};

}  // namespace
}  // namespace baton::serve::formats

const baton::serve::Protocol& baton::serve::ollama_chat() {
  static const formats::Ollama protocol(true);
  return protocol;
}

const baton::serve::Protocol& baton::serve::ollama_generate() {
  static const formats::Ollama protocol(false);
  return protocol;
}
