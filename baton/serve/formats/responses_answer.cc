// Answers of /v1/responses: https://platform.openai.com/docs/api-reference/responses-streaming
#include <fmt/format.h>

#include "baton/serve/formats/responses.h"

namespace baton::serve::formats {
namespace {

class ResponsesWriter : public AnswerWriter {
 public:
  explicit ResponsesWriter(const ApiRequest& request) : request_(request) {}

  std::string content_type() const override { return request_.stream ? "text/event-stream" : "application/json"; }

  std::string begin(const AnswerHead& head) override {
    head_ = head;
    std::string out = state("response.created", response("in_progress"));  // events are numbered
    out += state("response.in_progress", response("in_progress"));
    return out;
  }

  std::string part(uint32_t /*choice*/, const AnswerPart& part, const std::vector<ShownLogprob>& logprobs) override {
    const bool begins = part.kind == AnswerPart::Kind::kToolCall;
    const bool text = part.kind == AnswerPart::Kind::kText;
    // Those of text alone are shown; what came without any goes with the next one.
    for (const ShownLogprob& one : logprobs) {
      if (text) waiting_.push_back(logprob(one));
    }
    const bool goes_on = text && open_ && items_.back().kind == Shape::kText && !waiting_.empty();
    if (!begins && part.text.empty() && !goes_on) return {};
    std::string out;
    if (begins || !open_ || items_.back().kind != shape_of(part.kind)) {
      out = close("completed");  // in this order
      out += open(part);
    }
    Item& item = items_.back();
    item.text += part.text;
    Json shown = Json::array();
    if (text) shown.swap(waiting_);
    item.logprobs.insert(item.logprobs.end(), shown.begin(), shown.end());
    if (begins && part.text.empty()) return out;
    Json event = {{"delta", part.text}};
    switch (item.kind) {
      case Shape::kText:
        event["logprobs"] = std::move(shown);
        return out + of_content("response.output_text.delta", std::move(event));
      case Shape::kReasoning:
        return out + of_content("response.reasoning_text.delta", std::move(event));
      case Shape::kCall:
        return out + of_item("response.function_call_arguments.delta", std::move(event));
    }
    return out;
  }

  std::string end_choice(uint32_t /*choice*/, const ChoiceEnd& end) override {
    finish_ = end.finish;
    std::string out;
    if (items_.empty()) out = open(AnswerPart{});  // clients look for a message
    return out + close(whole() ? "completed" : "incomplete");
  }

  std::string end(const AnswerTail& tail) override {
    Json made = response(whole() ? "completed" : "incomplete");
    if (finish_ == Finish::kLength) made["incomplete_details"] = {{"reason", "max_output_tokens"}};
    made["usage"] = {{"input_tokens", tail.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", tail.cached_tokens}, {"cache_write_tokens", 0}}},
                     {"output_tokens", tail.completion_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", tail.reasoning_tokens}}},
                     {"total_tokens", tail.prompt_tokens + tail.completion_tokens}};
    if (!tail.baton.is_null()) made["baton"] = tail.baton;
    if (!request_.stream) return json_line(made);
    return state(whole() ? "response.completed" : "response.incomplete", std::move(made));
  }

  std::string error(const ApiError& given) override {
    const ApiError error = renamed(given, responses_names());
    const Json code = error.code.empty() ? Json(nullptr) : Json(error.code);
    std::string out = close("incomplete");
    out += send({{"type", "error"},
                 {"code", code},
                 {"message", error.message},
                 {"param", error.param.empty() ? Json(nullptr) : Json(error.param)}});
    Json made = response("failed");
    made["error"] = {{"code", error.status < 500 ? "invalid_prompt" : "server_error"}, {"message", error.message}};
    return out + state("response.failed", std::move(made));
  }

  std::string keep_alive() const override { return ": keep-alive\n\n"; }

 private:
  enum class Shape : uint8_t { kText, kReasoning, kCall };
  struct Item {
    Shape kind;
    std::string text;  // of a call its arguments
    std::string name;
    std::string status = "in_progress";
    Json logprobs = Json::array();
  };

  static Shape shape_of(AnswerPart::Kind kind) {
    if (kind == AnswerPart::Kind::kText) return Shape::kText;
    return kind == AnswerPart::Kind::kReasoning ? Shape::kReasoning : Shape::kCall;
  }
  static Json logprob(const ShownLogprob& shown) {
    Json made = {{"token", shown.token}, {"logprob", shown.logprob}, {"bytes", shown.bytes}};
    made["top_logprobs"] = Json::array();
    for (const ShownLogprob& top : shown.top)
      made["top_logprobs"].push_back({{"token", top.token}, {"logprob", top.logprob}, {"bytes", top.bytes}});
    return made;
  }
  // One that broke off, or was cut off, is none that can be made.
  static bool is_whole_call(const std::string& arguments) { return Json::parse(arguments, nullptr, false).is_object(); }
  bool whole() const { return finish_ != Finish::kLength && finish_ != Finish::kCancelled; }
  // An id of the OpenAI kind: what it is of, the answer's, which item.
  std::string id(std::string_view prefix, size_t index) const {
    return fmt::format("{}_{}{:02}", prefix, head_.id, index);
  }

  Json content(const Item& item) const {
    if (item.kind == Shape::kReasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
    return {{"type", "output_text"}, {"annotations", Json::array()}, {"logprobs", item.logprobs}, {"text", item.text}};
  }
  // `begun`: as it was when it was made.
  Json shown(size_t index, bool begun = false) const {
    const Item& item = items_[index];
    if (item.kind == Shape::kCall) {
      return {{"id", id("fc", index)}, {"type", "function_call"},      {"status", item.status},
              {"name", item.name},     {"call_id", id("call", index)}, {"arguments", begun ? "" : item.text}};
    }
    const Json parts = begun ? Json::array() : Json::array({content(item)});
    if (item.kind == Shape::kReasoning) {
      return {{"id", id("rs", index)},
              {"type", "reasoning"},
              {"status", item.status},
              {"summary", Json::array()},
              {"content", parts}};
    }
    return {{"id", id("msg", index)},
            {"type", "message"},
            {"status", item.status},
            {"role", "assistant"},
            {"content", parts}};
  }

  Json response(const char* status) const {
    Json made = {
        {"id", "resp_" + head_.id}, {"object", "response"}, {"created_at", head_.created},   {"status", status},
        {"background", false},      {"error", nullptr},     {"incomplete_details", nullptr}, {"model", head_.model},
        {"output", Json::array()},  {"usage", nullptr}};
    for (size_t i = 0; i < items_.size(); ++i) made["output"].push_back(shown(i));
    made.update(request_.user_data);
    return made;
  }

  // Events of a stream; of a whole answer nothing is sent.
  std::string send(Json event) {
    if (!request_.stream) return {};
    event["sequence_number"] = sequence_++;
    return sse_event(event);
  }
  std::string state(const char* type, Json response) {
    return send({{"type", type}, {"response", std::move(response)}});
  }
  std::string of_item(const char* type, Json fields) {
    Json event = {
        {"type", type}, {"item_id", shown(items_.size() - 1, true)["id"]}, {"output_index", items_.size() - 1}};
    event.update(fields);
    return send(std::move(event));
  }
  std::string of_content(const char* type, Json fields) {
    fields["content_index"] = 0;
    return of_item(type, std::move(fields));
  }

  std::string open(const AnswerPart& part) {
    items_.push_back({.kind = shape_of(part.kind), .text = {}, .name = part.name});
    open_ = true;
    const size_t last = items_.size() - 1;
    std::string out =
        send({{"type", "response.output_item.added"}, {"output_index", last}, {"item", shown(last, true)}});
    if (items_[last].kind != Shape::kCall)
      out += of_content("response.content_part.added", {{"part", content(items_[last])}});
    return out;
  }

  std::string close(const char* status) {
    if (!open_) return {};
    open_ = false;
    const size_t last = items_.size() - 1;
    Item& item = items_[last];
    item.status = item.kind == Shape::kCall && !is_whole_call(item.text) ? "incomplete" : status;
    std::string out;
    switch (item.kind) {
      case Shape::kText:
        out = of_content("response.output_text.done", {{"text", item.text}, {"logprobs", item.logprobs}});
        break;
      case Shape::kReasoning:
        out = of_content("response.reasoning_text.done", {{"text", item.text}});
        break;
      case Shape::kCall:
        out = of_item("response.function_call_arguments.done", {{"name", item.name}, {"arguments", item.text}});
        break;
    }
    if (item.kind != Shape::kCall) out += of_content("response.content_part.done", {{"part", content(item)}});
    return out + send({{"type", "response.output_item.done"}, {"output_index", last}, {"item", shown(last)}});
  }

  const ApiRequest& request_;
  AnswerHead head_;
  std::vector<Item> items_;
  bool open_ = false;             // the last of them
  Json waiting_ = Json::array();  // logprobs
  Finish finish_ = Finish::kStop;
  uint64_t sequence_ = 0;
};

class Responses : public Protocol {
 public:
  tl::expected<ApiRequest, ApiError> read(const Json& body) const override { return read_responses(body); }
  std::unique_ptr<AnswerWriter> writer(const ApiRequest& request) const override {
    return std::make_unique<ResponsesWriter>(request);
  }
  Json error_body(const ApiError& error) const override {
    return openai::error_body(renamed(error, responses_names()));
  }
};

}  // namespace
}  // namespace baton::serve::formats

const baton::serve::Protocol& baton::serve::openai_responses() {
  static const formats::Responses protocol;
  return protocol;
}
