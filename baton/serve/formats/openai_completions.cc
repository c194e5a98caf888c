// OpenAI's /v1/completions: text, no messages.
#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "baton/serve/formats/openai.h"
#include "baton/text/detokenizer.h"
#include "baton/text/utf8.h"

namespace baton::serve {
namespace {

uint64_t characters_in(std::string_view text) {
  uint64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

// A token that is part of a character is told by its bytes, as OpenAI does: no two tokens look the same.
std::string name_of(const ShownLogprob& token) {
  const std::string_view bytes(reinterpret_cast<const char*>(token.bytes.data()), token.bytes.size());
  if (is_utf8(bytes)) return token.token;
  std::string name = "bytes:";
  for (const uint8_t byte : token.bytes) fmt::format_to(std::back_inserter(name), "\\x{:02x}", byte);
  return name;
}

class CompletionsWriter final : public OpenAiWriter {
 public:
  explicit CompletionsWriter(const ApiRequest& request) : OpenAiWriter(request), choices_(request.answers()) {}

  // Reasoning is not split off here: all kinds are text.
  std::string part(uint32_t choice, const AnswerPart& part, const std::vector<ShownLogprob>& logprobs) override {
    Choice& of = choices_[choice];
    Json shown;
    if (request().logprobs) {
      shown = columns();
      for (const ShownLogprob& token : logprobs) add(shown, token, of);
    }
    if (of.logprobs.is_null()) {
      of.logprobs = shown;
    } else if (!logprobs.empty()) {
      append(of.logprobs, shown);
    }
    of.text += part.text;
    if (!request().stream || (part.text.empty() && logprobs.empty())) return {};
    return chunk(choice, part.text, std::move(shown), nullptr);
  }

  std::string end_choice(uint32_t choice, const ChoiceEnd& end) override {
    choices_[choice].finish = finish_word(end.finish);
    return request().stream ? chunk(choice, "", nullptr, choices_[choice].finish) : std::string();
  }

 private:
  struct Choice {
    std::string text;
    Utf8Stream stream;        // of the tokens whose logprobs came
    uint64_t characters = 0;  // that ended in them
    Json logprobs;
    const char* finish = "stop";
  };

  static Json columns() {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  }
  static void append(Json& to, const Json& more) {
    for (const auto& [name, values] : more.items()) {
      for (const Json& value : values) to[name].push_back(value);
    }
  }
  // Tokens of one character have its offset.
  static void add(Json& to, const ShownLogprob& token, Choice& of) {
    const std::string name = name_of(token);
    to["tokens"].push_back(name);
    to["token_logprobs"].push_back(logprob_json(token.logprob));
    Json top = Json::object();
    for (const ShownLogprob& other : token.top) top[name_of(other)] = logprob_json(other.logprob);
    if (!top.contains(name)) top[name] = logprob_json(token.logprob);
    to["top_logprobs"].push_back(logprob_json(token.logprob).is_null() ? Json(nullptr) : std::move(top));
    to["text_offset"].push_back(of.characters);
    std::string ended;
    of.stream.push({reinterpret_cast<const char*>(token.bytes.data()), token.bytes.size()}, &ended);
    of.characters += characters_in(ended);
  }
  std::string chunk(uint32_t choice, const std::string& text, Json logprobs, const char* finish) {
    return event({{"index", choice},
                  {"text", text},
                  {"logprobs", std::move(logprobs)},
                  {"finish_reason", finish == nullptr ? Json(nullptr) : Json(finish)}});
  }
  const char* stream_object() const override { return "text_completion"; }
  const char* whole_object() const override { return "text_completion"; }
  const char* id_prefix() const override { return "cmpl-"; }

  Json whole_choices() const override {
    Json list = Json::array();
    for (const Choice& of : choices_) {
      list.push_back({{"index", list.size()},
                      {"text", of.text},
                      {"logprobs", request().logprobs && of.logprobs.is_null() ? columns() : of.logprobs},
                      {"finish_reason", of.finish}});
    }
    return list;
  }

  std::vector<Choice> choices_;
};

class Completions final : public Protocol {
 public:
  tl::expected<ApiRequest, ApiError> read(const Json& body) const override {
    return openai::read_request(openai::Endpoint::kCompletions, body, openai::Reader::kServer);
  }
  std::unique_ptr<AnswerWriter> writer(const ApiRequest& request) const override {
    return std::make_unique<CompletionsWriter>(request);
  }
  Json error_body(const ApiError& error) const override { return openai::error_body(error); }
};

}  // namespace

const Protocol& openai_completions() {
  static const Completions completions;
  return completions;
}

}  // namespace baton::serve
