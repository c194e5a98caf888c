// What a model writes, taken apart while it comes: reasoning, text, and calls of tools, in the forms that families of
// chat templates ask for. Text in pieces goes in, parts come out; nothing of a marker is ever shown as text.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/text_model.h"

namespace baton {

struct AnswerPart {
  enum class Kind : uint8_t {
    kText,
    kReasoning,
    kToolCall,       // one begins: `call`, `name`
    kToolArguments,  // of call `call`: a further piece of its JSON text
  };
  Kind kind = Kind::kText;
  std::string text = {};
  uint32_t call = 0;  // 0 for the first of the answer
  std::string name = {};
};

// How a template writes calls.
enum class ToolStyle : uint8_t {
  kNone,     // the template knows no tools
  kHermes,   // <tool_call>{"name": N, "arguments": {...}}</tool_call>: Qwen 2.5, Qwen3, Hermes
  kQwenXml,  // <tool_call><function=N><parameter=P>value</parameter></function></tool_call>: Qwen3-Coder, Qwen3.5
  kLlama3,   // {"name": N, "parameters": {...}}, alone or behind <|python_tag|>: Llama 3.1 to 3.3
};
ToolStyle tool_style_of(std::string_view chat_template);
ToolStyle tool_style_of(const TextModel& model);  // by the template's text

struct AnswerParserOptions {
  ToolStyle style = ToolStyle::kNone;      // kNone: calls are text
  nlohmann::ordered_json tools = nullptr;  // as the request gave them, for types of XML parameters; null: none
  bool split_reasoning = true;             // <think>...</think>
  bool begins_in_reasoning = false;        // the prompt ended with <think>
  // A call's arguments come as they are written; without it a call comes when it is whole, and what turns out to be
  // none is text. (Of what was streamed already, `whole_calls` tells.)
  bool stream_arguments = true;
};

// White space beside markers belongs to them. <think> counts at the start of a line. What looks like a call and is none
// (no JSON, an unknown tool, never ended) is text, markers and all.
class AnswerParser {
 public:
  static constexpr size_t kHeldBytesMax = size_t{1} << 20;  // of a call that may yet be text: more than that is
  static constexpr uint32_t kCallsMax = 128;                // of an answer: more are text
  explicit AnswerParser(AnswerParserOptions options);
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;
  ~AnswerParser();
  // Bytes in any portions: half a character waits for its rest, what is no UTF-8 becomes U+FFFD. In order; adjacent
  // pieces of one kind may be put together. What may yet be a marker is held back.
  std::vector<AnswerPart> push(std::string_view text);
  // The rest: an unfinished marker is text. Arguments that were begun are not completed; `calls_whole` says so.
  std::vector<AnswerPart> finish();
  uint32_t calls() const;        // begun so far
  uint32_t whole_calls() const;  // of these, that ended, their arguments one JSON object
  bool calls_whole() const;      // each of them

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace baton
