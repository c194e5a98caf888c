// What `response_format` and its like ask of an answer, compiled for one tokenizer: constraints for requests.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

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
  // Slow for a large vocabulary (once): not on the way of a request. `stop_ids`: what ends an answer.
  static Result<std::shared_ptr<FormatCompiler>> create(const TextModel& model);
  virtual ~FormatCompiler() = default;
  // A fresh constraint. kInvalidInput / kUnsupported name what of the schema, expression or grammar it is, by its path;
  // null for kAny.
  virtual Result<std::shared_ptr<TokenConstraint>> constraint(const AnswerFormat& format) = 0;
};

}  // namespace baton
