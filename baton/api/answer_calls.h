// Calls of tools as models write them, read character by character: what AnswerParser is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "baton/api/json_scan.h"

namespace baton {

// What a text that is being matched with a fixed one may say of the next character.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}
  enum class Step : uint8_t { kMore, kWhole, kOther };  // kOther: not taken
  Step take(char c) {
    if (text_[taken_] != c) return Step::kOther;
    return ++taken_ == text_.size() ? Step::kWhole : Step::kMore;
  }
  std::string_view taken() const { return text_.substr(0, taken_); }
  void reset() { taken_ = 0; }

 private:
  std::string_view text_;
  size_t taken_ = 0;
};

// The tools of a request: names, and what their parameters are.
class ToolBook {
 public:
  static constexpr size_t kNameBytesMax = 64;

  // As the request gave them; null or empty: any name is taken.
  explicit ToolBook(nlohmann::ordered_json tools);
  bool knows(std::string_view name) const;
  // What the schema lets a parameter be, a bit for each type; 0: it does not say.
  unsigned types(std::string_view tool, std::string_view parameter) const;
  static constexpr unsigned kString = 1;

 private:
  const nlohmann::ordered_json* find(std::string_view name) const;
  nlohmann::ordered_json tools_;
};

// Where a reader puts what it read.
class CallSink {
 public:
  virtual ~CallSink() = default;
  virtual void begin(std::string_view name) = 0;
  virtual void arguments(std::string_view json) = 0;
  virtual void whole() = 0;  // the arguments are one object
};

// Reads one call, from behind what it was known by.
class CallReader {
 public:
  enum class Step : uint8_t {
    kMore,
    kEnd,     // taken, nothing belongs to the call behind it
    kBehind,  // not taken: `rest` and then it stand behind a whole call
    kBad,     // not taken: no call
  };
  virtual ~CallReader() = default;
  virtual Step take(char c, CallSink& sink) = 0;
  // What was taken and not given to the sink: behind a whole call, or of one that broke off.
  virtual std::string rest() const = 0;
};

// {"name": N, "arguments": {...}}; with `close`, up to and with that text. `bare`: nothing said that it is a call, so
// that the first key must look like one, and arguments must be there.
std::unique_ptr<CallReader> json_call_reader(const ToolBook& tools, std::string_view close, bool bare);
// <function=N><parameter=P>value</parameter></function></tool_call>, from behind <tool_call>, or, `inside`, behind
// <function=. A value that must be seen whole has at most `value_bytes_max`.
std::unique_ptr<CallReader> xml_call_reader(const ToolBook& tools, bool inside, size_t value_bytes_max);

}  // namespace baton
