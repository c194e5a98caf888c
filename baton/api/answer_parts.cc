// A parser without a view ahead: what may yet be a marker or a call waits, everything else goes out.
#include "baton/api/answer_parts.h"

#include <algorithm>

#include "baton/api/answer_calls.h"
#include "baton/api/json_scan.h"
#include "baton/text/utf8.h"

namespace baton {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kToolCall = "<tool_call>", kToolCallEnd = "</tool_call>", kFunction = "<function=";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr size_t kBlanksMax = 256;  // held back: more are shown
constexpr int kReadAgainMax = 4;    // of what is read again behind a call

}  // namespace

ToolStyle tool_style_of(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  if (!has("tools")) return ToolStyle::kNone;
  if (has(kToolCall)) {
    if (has(kFunction) && has("<parameter=")) return ToolStyle::kQwenXml;
    const bool json = has("arguments\"") || has("arguments\\\"") || has("arguments'");
    return json && !has("<arg_key>") && !has("<tool_calls>") ? ToolStyle::kHermes : ToolStyle::kNone;
  }
  const bool llama = has("<|start_header_id|>") && has("ipython") && has("tool_calls") && !has(kFunction);
  return llama && has("\"parameters\"") ? ToolStyle::kLlama3 : ToolStyle::kNone;
}

ToolStyle tool_style_of(const TextModel& model) {
  return model.chat_template ? tool_style_of(model.chat_template->source()) : ToolStyle::kNone;
}

// One character after the other, so that pieces cannot matter.
struct AnswerParser::State final : CallSink {
  explicit State(AnswerParserOptions given) : options(std::move(given)), tools(std::move(options.tools)) {
    if (options.begins_in_reasoning && options.split_reasoning) begin_reasoning();
  }

  enum class Mode : uint8_t { kText, kReasoning, kCall };

  AnswerParserOptions options;
  ToolBook tools;
  std::vector<AnswerPart> parts;  // of this push
  Mode mode = Mode::kText;
  std::string bytes;   // half a character
  std::string blanks;  // white space that may belong to a marker
  std::string mark;    // what may yet be a marker
  // Of text: nothing was shown since the start, the reasoning or a call; nothing but white space since a line began;
  // white space in front of it goes; a ';' may be between two calls.
  bool at_start = true, line_start = true, drop_blanks = false, semicolon = false;
  bool begun_reasoning = false;  // something of it was shown

  std::unique_ptr<CallReader> reader;  // of kCall
  std::string raw;                     // what the call is made of, while it may be text
  bool may_be_text = false, begun = false, ended = false;
  std::vector<AnswerPart> waiting;  // of a call that is not whole
  uint32_t calls = 0, whole_calls = 0;
  bool broken = false;
  int depth = 0;

  void add(AnswerPart::Kind kind, std::string_view text, uint32_t call = 0) {
    if (text.empty()) return;
    if (!parts.empty() && parts.back().kind == kind && parts.back().call == call) {
      parts.back().text += text;
    } else {
      parts.push_back({kind, std::string(text), call, {}});
    }
  }

  // ---- text and reasoning

  void show(std::string_view text) {
    if (!drop_blanks) {
      add(AnswerPart::Kind::kText, blanks);
    } else if (const size_t at = blanks.find(';'); at != std::string::npos) {
      add(AnswerPart::Kind::kText, std::string_view(blanks).substr(at));
    }
    blanks.clear();
    add(AnswerPart::Kind::kText, text);
    at_start = line_start = drop_blanks = semicolon = false;
  }

  void begin_reasoning() {
    mode = Mode::kReasoning;
    begun_reasoning = false;
    blanks.clear();
    mark.clear();
  }

  void end_marked() {  // text follows
    mode = Mode::kText;
    blanks.clear();
    mark.clear();
    at_start = line_start = drop_blanks = true;
    semicolon = false;
  }

  // The markers that may begin here.
  bool any_mark(std::string_view begin) const {
    const auto is = [&](std::string_view marker) { return marker.starts_with(begin); };
    if (options.split_reasoning && line_start && is(kThink)) return true;
    if (calls >= kCallsMax) return false;
    switch (options.style) {
      case ToolStyle::kNone:
        return false;
      case ToolStyle::kHermes:
        return is(kToolCall);
      case ToolStyle::kQwenXml:
        return is(kToolCall) || is(kFunction);
      case ToolStyle::kLlama3:
        return is(kPythonTag);
    }
    return false;
  }

  void whole_mark() {
    if (mark == kThink) return begin_reasoning();
    if (mark == kPythonTag) {
      begin_call(json_call_reader(tools, "", false));
    } else if (options.style == ToolStyle::kHermes) {
      begin_call(json_call_reader(tools, kToolCallEnd, false));
    } else {
      begin_call(xml_call_reader(tools, mark == kFunction, kHeldBytesMax));
    }
  }

  void text_char(char c) {
    if (!mark.empty()) {
      mark.push_back(c);
      if (mark == kThink || mark == kToolCall || mark == kFunction || mark == kPythonTag) return whole_mark();
      if (any_mark(mark)) return;
      mark.pop_back();
      show(mark);
      mark.clear();
    }
    const bool json = c == '{' && options.style == ToolStyle::kLlama3 && at_start && calls < kCallsMax;
    if (json || (c == '<' && any_mark("<"))) {
      mark.push_back(c);
      if (json) {
        mark.clear();
        begin_call(json_call_reader(tools, "", true));
        call_char(c);
      }
    } else if (is_json_blank(c) || (c == ';' && semicolon)) {
      blank_char(c);
    } else {
      show(std::string_view(&c, 1));
    }
  }

  void blank_char(char c) {
    if (c == ';') semicolon = false;
    if (c == '\n') line_start = true;
    const bool hold = options.style != ToolStyle::kNone || at_start;
    if (!hold || blanks.size() >= kBlanksMax) {
      if (!drop_blanks) add(AnswerPart::Kind::kText, blanks);
      blanks.clear();
    }
    if (hold) {
      blanks.push_back(c);
    } else {
      add(AnswerPart::Kind::kText, std::string_view(&c, 1));
    }
  }

  void think(std::string_view text) {
    if (begun_reasoning) add(AnswerPart::Kind::kReasoning, blanks);
    blanks.clear();
    add(AnswerPart::Kind::kReasoning, text);
    begun_reasoning = true;
  }

  void reasoning_char(char c) {
    if (!mark.empty()) {
      mark.push_back(c);
      if (mark == kThinkEnd) return end_marked();
      if (kThinkEnd.starts_with(mark)) return;
      mark.pop_back();
      think(mark);
      mark.clear();
    }
    if (c == '<') {
      mark.push_back(c);
    } else if (!is_json_blank(c)) {
      think(std::string_view(&c, 1));
    } else {
      if (blanks.size() >= kBlanksMax) think("");
      blanks.push_back(c);
    }
  }

  // ---- calls

  void begin_call(std::unique_ptr<CallReader> made) {
    mode = Mode::kCall;
    reader = std::move(made);
    raw = mark;
    mark.clear();
    may_be_text = true;
    begun = ended = false;
  }

  void take_as_call() {
    blanks.clear();
    raw.clear();
    may_be_text = false;
  }

  void begin(std::string_view name) override {
    begun = true;
    AnswerPart part{AnswerPart::Kind::kToolCall, {}, calls, std::string(name)};
    if (!options.stream_arguments) return waiting.push_back(std::move(part));
    take_as_call();
    parts.push_back(std::move(part));
    ++calls;
  }

  void arguments(std::string_view json) override {
    if (options.stream_arguments) return add(AnswerPart::Kind::kToolArguments, json, calls - 1);
    if (waiting.size() == 1) waiting.push_back({AnswerPart::Kind::kToolArguments, {}, calls, {}});
    waiting.back().text += json;
  }

  void whole() override {
    ended = true;
    ++whole_calls;
    if (options.stream_arguments) return;
    take_as_call();
    for (AnswerPart& part : waiting) parts.push_back(std::move(part));
    waiting.clear();
    ++calls;
  }

  void leave_call() {
    reader.reset();
    raw.clear();
    end_marked();
    at_start = semicolon = options.style == ToolStyle::kLlama3;
  }

  void fail_call() {
    std::string text = std::move(raw);
    if (!may_be_text) {  // something of it was shown as a call
      broken = true;
      blanks.clear();
      drop_blanks = false;
      text = reader->rest();
    }
    mode = Mode::kText;
    reader.reset();
    raw.clear();
    waiting.clear();
    show(text);
  }

  // What stands behind a whole call, which `rest` was taken for.
  void read_again(const std::string& rest) {
    leave_call();
    if (++depth > kReadAgainMax) {
      show(rest);
    } else {
      for (const char c : rest) take(c);
    }
    --depth;
  }

  void call_char(char c) {
    if (may_be_text && raw.size() >= kHeldBytesMax) {
      fail_call();
      return take(c);
    }
    const bool held = may_be_text;
    const CallReader::Step step = reader->take(c, *this);
    if (step == CallReader::Step::kMore) {
      if (held && may_be_text) raw.push_back(c);
    } else if (step == CallReader::Step::kEnd) {
      leave_call();
    } else if (step == CallReader::Step::kBehind) {
      read_again(reader->rest());
      take(c);
    } else {
      fail_call();
      take(c);
    }
  }

  // ---- all

  void take(char c) {
    switch (mode) {
      case Mode::kText:
        return text_char(c);
      case Mode::kReasoning:
        return reasoning_char(c);
      case Mode::kCall:
        return call_char(c);
    }
  }

  void push(std::string_view text) {
    bytes += text;
    size_t at = 0;
    while (at < bytes.size()) {
      const Utf8Char next = decode_utf8(bytes, at);
      if (!next.valid && next.truncated) break;
      for (const char c : next.valid ? std::string_view(bytes).substr(at, next.length) : "\xEF\xBF\xBD") take(c);
      at += next.length;
    }
    bytes.erase(0, at);
  }

  void finish() {
    if (!bytes.empty()) {
      bytes.clear();
      for (const char c : std::string_view("\xEF\xBF\xBD")) take(c);
    }
    while (mode == Mode::kCall) {  // what is read again is shorter each time
      if (ended) {
        read_again(reader->rest());
      } else {
        fail_call();
      }
    }
    if (mode == Mode::kReasoning) {
      if (!mark.empty()) think(mark);
    } else if (!mark.empty() || (!drop_blanks && !blanks.empty())) {
      show(mark);
    }
    mark.clear();
    blanks.clear();
  }
};

AnswerParser::AnswerParser(AnswerParserOptions options) : state_(std::make_unique<State>(std::move(options))) {}
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;
AnswerParser::~AnswerParser() = default;

std::vector<AnswerPart> AnswerParser::push(std::string_view text) {
  state_->push(text);
  return std::exchange(state_->parts, {});
}

std::vector<AnswerPart> AnswerParser::finish() {
  state_->finish();
  return std::exchange(state_->parts, {});
}

uint32_t AnswerParser::calls() const { return state_->calls; }
uint32_t AnswerParser::whole_calls() const { return state_->whole_calls; }
bool AnswerParser::calls_whole() const { return !state_->broken && state_->whole_calls == state_->calls; }

}  // namespace baton
