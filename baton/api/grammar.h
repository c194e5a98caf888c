// What `response_format` and its like ask of an answer, compiled for one tokenizer: constraints for requests.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "baton/api/answer_parts.h"
#include "baton/api/text_model.h"
#include "baton/sample/constraint.h"

namespace baton {

// One of these.
struct AnswerFormat {
  enum class Kind : uint8_t { kAny, kJsonObject, kJsonSchema, kRegex, kGrammar };
  Kind kind = Kind::kAny;
  nlohmann::ordered_json schema = nullptr;  // of kJsonSchema
  std::string text = {};                    // of kRegex; of kGrammar, in llama.cpp's GBNF
};

// Compiled grammars of one tokenizer, the last few kept. Any thread.
class FormatCompiler {
 public:
  // Slow for a large vocabulary (once): not on the way of a request. The model's stop ids are what ends an answer.
  // kUnsupported: a model without a tokenizer.
  static Result<std::shared_ptr<FormatCompiler>> create(const TextModel& model);
  virtual ~FormatCompiler() = default;
  // A fresh constraint. kInvalidInput / kUnsupported name what of the schema, expression or grammar it is, by its path;
  // null for kAny.
  virtual Result<std::shared_ptr<TokenConstraint>> constraint(const AnswerFormat& format) = 0;
  // One call of a tool (as the request gave them), of the one called `name` unless it is empty, and with `parallel`
  // maybe more: in the style's form, with arguments that fit the tool's schema. Errors name the tool and the place in
  // its parameters; kUnsupported for kNone.
  virtual Result<std::shared_ptr<TokenConstraint>> tool_calls(ToolStyle style, const nlohmann::ordered_json& tools,
                                                              const std::string& name, bool parallel) = 0;
  // Anything, but no end, until `marker` ("</think>") was written; then what `inner`, fresh and of this compiler, asks
  // for, with up to four spaces or line ends in front of it. Null stays null.
  virtual std::shared_ptr<TokenConstraint> behind(std::string_view marker,
                                                  const std::shared_ptr<TokenConstraint>& inner) = 0;
};

}  // namespace baton
