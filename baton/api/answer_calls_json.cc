// Calls that are JSON objects.
#include <algorithm>

#include "baton/api/answer_calls.h"

namespace baton {
namespace {

using nlohmann::ordered_json;

constexpr size_t kTailBytesMax = size_t{1} << 16;  // members behind the arguments

class JsonCallReader final : public CallReader {
 public:
  JsonCallReader(const ToolBook& tools, std::string_view close, bool bare) : tools_(tools), close_(close), bare_(bare) {
    has_close_ = !close.empty();
  }

  Step take(char c, CallSink& sink) override {
    if (at_ == At::kClose) return behind_object(c);
    const Step step = in_object(c, sink);
    if (whole_ && step == Step::kBad) return Step::kBehind;
    if (whole_ && !just_whole_) {
      if (tail_.size() >= kTailBytesMax) return Step::kBehind;
      tail_.push_back(c);
    }
    just_whole_ = false;
    return step;
  }

  std::string rest() const override {
    if (at_ == At::kClose) return std::string(has_close_ ? close_.taken() : "");
    return passing_ ? scan_.held() : tail_;
  }

 private:
  enum class At : uint8_t { kObject, kKeyOrEnd, kKey, kInKey, kColon, kValue, kInValue, kCommaOrEnd, kClose };

  Step in_object(char c, CallSink& sink) {
    if (at_ == At::kInKey) return in_key(c);
    if (at_ == At::kInValue) return in_value(c, sink);
    if (is_json_blank(c)) return Step::kMore;
    if (at_ == At::kObject && c == '{') {
      at_ = At::kKeyOrEnd;
    } else if ((at_ == At::kKeyOrEnd || at_ == At::kKey) && c == '"') {
      raw_.clear();
      scan_ = JsonScan();
      at_ = At::kInKey;
      return in_key(c);
    } else if (at_ == At::kColon && c == ':') {
      at_ = At::kValue;
    } else if (at_ == At::kValue) {
      return begin_value(c, sink);
    } else if (at_ == At::kCommaOrEnd && c == ',') {
      at_ = At::kKey;
    } else if ((at_ == At::kCommaOrEnd || at_ == At::kKeyOrEnd) && c == '}') {
      return end_object(sink);
    } else {
      return Step::kBad;
    }
    return Step::kMore;
  }

  Step in_key(char c) {
    const JsonScan::Step step = scan_.take(c, &raw_);
    if (step == JsonScan::Step::kBad) return Step::kBad;
    if (step == JsonScan::Step::kMore) return Step::kMore;
    key_ = ordered_json::parse(raw_).get<std::string>();
    constexpr std::string_view kKeys[] = {"name", "arguments", "parameters", "type", "id"};
    if (bare_ && first_ && std::find(std::begin(kKeys), std::end(kKeys), key_) == std::end(kKeys)) return Step::kBad;
    first_ = false;
    at_ = At::kColon;
    return Step::kMore;
  }

  bool of_arguments() const { return key_ == "arguments" || key_ == "parameters"; }

  Step begin_value(char c, CallSink& sink) {
    raw_.clear();
    scan_ = JsonScan();
    at_ = At::kInValue;
    if (of_arguments() && !arguments_ && !whole_) {
      if (c != '{' && c != '"' && c != 'n') return Step::kBad;
      passing_ = name_ && c == '{';
      if (passing_) sink.begin(*name_);
    }
    return in_value(c, sink);
  }

  Step in_value(char c, CallSink& sink) {
    const size_t before = raw_.size();
    const JsonScan::Step step = scan_.take(c, &raw_);
    if (step == JsonScan::Step::kBad) return Step::kBad;
    if (passing_) {
      sink.arguments(std::string_view(raw_).substr(before));
      raw_.clear();
    }
    if (step == JsonScan::Step::kMore) return Step::kMore;
    at_ = At::kCommaOrEnd;
    if (!end_value(sink)) return Step::kBad;
    return step == JsonScan::Step::kBehind ? in_object(c, sink) : Step::kMore;
  }

  // Of `key_`, in `raw_` where it was not passed on.
  bool end_value(CallSink& sink) {
    if (whole_) return true;
    if (passing_) {
      passing_ = false;
      end_call(sink);
    } else if (key_ == "name" && !name_) {
      const ordered_json name = ordered_json::parse(raw_);
      if (!name.is_string() || !tools_.knows(name.get_ref<const std::string&>())) return false;
      name_ = name.get<std::string>();
    } else if (of_arguments() && !arguments_) {
      arguments_ = arguments_of(raw_);
      if (!arguments_) return false;
    }
    if (name_ && arguments_ && !whole_) {
      sink.begin(*name_);
      sink.arguments(*arguments_);
      end_call(sink);
    }
    return true;
  }

  // An object as it is, one that was written as a text, or nothing for null.
  static std::optional<std::string> arguments_of(const std::string& raw) {
    if (raw.starts_with('{')) return raw;
    if (raw == "null") return "{}";
    std::string text = ordered_json::parse(raw).get<std::string>();
    if (text.find_first_not_of(" \n\t\r") == std::string::npos) return "{}";
    text.erase(0, text.find_first_not_of(" \n\t\r"));
    if (!text.starts_with('{') || !is_json(text)) return std::nullopt;
    return text;
  }

  void end_call(CallSink& sink) {
    whole_ = just_whole_ = true;
    sink.whole();
  }

  Step end_object(CallSink& sink) {
    if (!whole_) {
      if (!name_ || bare_) return Step::kBad;
      sink.begin(*name_);
      sink.arguments("{}");
      end_call(sink);
    }
    at_ = At::kClose;
    return has_close_ ? Step::kMore : Step::kEnd;
  }

  // White space, a brace too many, and what closes.
  Step behind_object(char c) {
    if (close_.taken().empty() && (is_json_blank(c) || c == '}')) return Step::kMore;
    switch (close_.take(c)) {
      case Literal::Step::kMore:
        return Step::kMore;
      case Literal::Step::kWhole:
        return Step::kEnd;
      case Literal::Step::kOther:
        break;
    }
    return Step::kBehind;
  }

  const ToolBook& tools_;
  Literal close_;
  bool has_close_ = false, bare_;
  At at_ = At::kObject;
  bool first_ = true;             // no key was read
  bool passing_ = false;          // the value is the arguments, and goes to the sink as it comes
  bool whole_ = false;            // the call is
  bool just_whole_ = false;       // by this character
  std::string key_, raw_, tail_;  // tail_: behind a whole call
  JsonScan scan_;
  std::optional<std::string> name_, arguments_;
};

}  // namespace

std::unique_ptr<CallReader> json_call_reader(const ToolBook& tools, std::string_view close, bool bare) {
  return std::make_unique<JsonCallReader>(tools, close, bare);
}

}  // namespace baton
