// Answers of /v1/messages: https://docs.anthropic.com/en/api/messages-streaming
#include <fmt/format.h>

#include "baton/serve/formats/anthropic.h"

namespace baton::serve::formats {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

class MessagesWriter : public AnswerWriter {
 public:
  explicit MessagesWriter(const ApiRequest& request) : request_(request) {}

  std::string content_type() const override { return request_.stream ? "text/event-stream" : "application/json"; }

  std::string begin(const AnswerHead& head) override {
    head_ = head;
    Json message = this->message();
    message["usage"] = {{"input_tokens", head.prompt_tokens},
                        {"cache_creation_input_tokens", 0},
                        {"cache_read_input_tokens", 0},
                        {"output_tokens", 0}};
    return send({{"type", "message_start"}, {"message", std::move(message)}}) + send({{"type", "ping"}});
  }

  std::string part(uint32_t /*choice*/, const AnswerPart& part,
                   const std::vector<ShownLogprob>& /*logprobs*/) override {
    const bool begins = part.kind == AnswerPart::Kind::kToolCall;
    if (!begins && part.text.empty()) return {};
    std::string out;
    if (begins || !open_ || blocks_.back().kind != kind_of(part.kind)) {
      out = close();  // in this order
      out += open(part);
    }
    blocks_.back().text += part.text;
    if (begins && part.text.empty()) return out;
    switch (blocks_.back().kind) {
      case Kind::kText:
        return out + delta({{"type", "text_delta"}, {"text", part.text}});
      case Kind::kThinking:
        return out + delta({{"type", "thinking_delta"}, {"thinking", part.text}});
      case Kind::kToolUse:
        return out + delta({{"type", "input_json_delta"}, {"partial_json", part.text}});
    }
    return out;
  }

  std::string end_choice(uint32_t /*choice*/, const ChoiceEnd& end) override {
    end_ = end;
    return close();
  }

  std::string end(const AnswerTail& tail) override {
    // What was found in the cache does not count as input.
    const Json usage = {{"input_tokens", tail.prompt_tokens - std::min(tail.cached_tokens, tail.prompt_tokens)},
                        {"cache_creation_input_tokens", 0},
                        {"cache_read_input_tokens", tail.cached_tokens},
                        {"output_tokens", tail.completion_tokens}};
    if (request_.stream) {
      Json last = {{"type", "message_delta"},
                   {"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
                   {"usage", usage}};
      if (!tail.baton.is_null()) last["baton"] = tail.baton;
      return send(std::move(last)) + send({{"type", "message_stop"}});
    }
    Json message = this->message();
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (Json block = shown(i, false); !block.is_null()) message["content"].push_back(std::move(block));
    }
    message["stop_reason"] = stop_reason();
    message["stop_sequence"] = stop_sequence();
    message["usage"] = usage;
    if (!tail.baton.is_null()) message["baton"] = tail.baton;
    return json_line(message);
  }

  std::string error(const ApiError& error) override {
    Json made = anthropic_error(error);
    if (!head_.request_id.empty()) made["request_id"] = head_.request_id;
    return send(std::move(made));
  }

  std::string keep_alive() const override { return sse_event({{"type", "ping"}}); }

 private:
  enum class Kind : uint8_t { kText, kThinking, kToolUse };
  struct Block {
    Kind kind;
    std::string text;  // of a call its input
    std::string name;
  };

  static Kind kind_of(AnswerPart::Kind kind) {
    if (kind == AnswerPart::Kind::kText) return Kind::kText;
    return kind == AnswerPart::Kind::kReasoning ? Kind::kThinking : Kind::kToolUse;
  }
  Json stop_reason() const {
    switch (end_.finish) {
      case Finish::kStop:
        return "end_turn";
      case Finish::kStopString:
        return "stop_sequence";
      case Finish::kLength:
        return "max_tokens";
      case Finish::kToolCalls:
        return "tool_use";
      case Finish::kCancelled:
        return nullptr;
    }
    return nullptr;
  }
  Json stop_sequence() const { return end_.finish == Finish::kStopString ? Json(end_.stop_string) : Json(nullptr); }

  Json message() const {
    return {{"id", "msg_" + head_.id},  {"type", "message"},      {"role", "assistant"},     {"model", head_.model},
            {"content", Json::array()}, {"stop_reason", nullptr}, {"stop_sequence", nullptr}};
  }

  // `begun`: as a stream's first event has it. Null: a call that was cut off, whose input is no object.
  Json shown(size_t index, bool begun) const {
    const Block& block = blocks_[index];
    switch (block.kind) {
      case Kind::kText:
        return {{"type", "text"}, {"text", begun ? "" : block.text}};
      case Kind::kThinking:
        return {{"type", "thinking"}, {"thinking", begun ? "" : block.text}, {"signature", ""}};
      case Kind::kToolUse:
        break;
    }
    Json input = begun ? Json::object() : Json::parse(block.text, nullptr, false);
    if (!input.is_object()) return nullptr;
    return {{"type", "tool_use"},
            {"id", fmt::format("toolu_{}{:02}", head_.id, index)},
            {"name", block.name},
            {"input", std::move(input)}};
  }

  std::string send(Json event) const { return request_.stream ? sse_event(event) : std::string(); }
  std::string delta(Json fields) const {
    return send({{"type", "content_block_delta"}, {"index", blocks_.size() - 1}, {"delta", std::move(fields)}});
  }
  std::string open(const AnswerPart& part) {
    blocks_.push_back({.kind = kind_of(part.kind), .text = {}, .name = part.name});
    open_ = true;
    const size_t last = blocks_.size() - 1;
    return send({{"type", "content_block_start"}, {"index", last}, {"content_block", shown(last, true)}});
  }
  std::string close() {
    if (!open_) return {};
    open_ = false;
    std::string out;
    if (blocks_.back().kind == Kind::kThinking) out = delta({{"type", "signature_delta"}, {"signature", ""}});
    return out + send({{"type", "content_block_stop"}, {"index", blocks_.size() - 1}});
  }

  const ApiRequest& request_;
  AnswerHead head_;
  std::vector<Block> blocks_;
  bool open_ = false;  // the last of them
  ChoiceEnd end_;
};

class Messages : public Protocol {
 public:
  tl::expected<ApiRequest, ApiError> read(const Json& body) const override { return read_messages_body(body); }
  std::unique_ptr<AnswerWriter> writer(const ApiRequest& request) const override {
    return std::make_unique<MessagesWriter>(request);
  }
  Json error_body(const ApiError& error) const override { return anthropic_error(error); }
};

}  // namespace

Json anthropic_error(const ApiError& error) {
  return {{"type", "error"},
          {"error", {{"type", error_type(error.status)}, {"message", renamed(error, anthropic_names()).message}}}};
}

}  // namespace baton::serve::formats

const baton::serve::Protocol& baton::serve::anthropic_messages() {
  static const formats::Messages protocol;
  return protocol;
}
