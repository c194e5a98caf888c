// The tools of a request, and calls written as tags.
#include "baton/api/answer_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace baton {
namespace {

using nlohmann::ordered_json;

constexpr size_t kParameterBytesMax = 256;  // of its name
constexpr size_t kParametersMax = 256;      // of one call
constexpr size_t kHeldOfTagMax = 16;        // of what ends a value
constexpr int kSchemaDepthMax = 8;          // of anyOf in anyOf

bool is_name(std::string_view name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= ToolBook::kNameBytesMax && std::all_of(name.begin(), name.end(), good);
}

// A member of an object, or null.
const ordered_json* member(const ordered_json* of, const std::string& name) {
  if (of == nullptr || !of->is_object()) return nullptr;
  const auto found = of->find(name);
  return found == of->end() ? nullptr : &*found;
}

// One bit for each type of JSON.
unsigned type_bit(std::string_view type) {
  constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean", "object", "array", "null"};
  const auto* found = std::find(std::begin(kTypes), std::end(kTypes), type);
  return found == std::end(kTypes) ? 0 : 1u << (found - std::begin(kTypes));
}

// Of a JSON text; a number may be whole or not.
unsigned type_bits(std::string_view json) {
  switch (json.front()) {
    case '"':
      return ToolBook::kString;
    case '{':
      return type_bit("object");
    case '[':
      return type_bit("array");
    case 't':
    case 'f':
      return type_bit("boolean");
    case 'n':
      return type_bit("null");
    default:
      return type_bit("number") | type_bit("integer");
  }
}

void add_types(const ordered_json& schema, int depth, unsigned* to) {
  if (!schema.is_object() || depth > kSchemaDepthMax) return;
  if (const ordered_json* type = member(&schema, "type")) {
    for (const ordered_json& one : type->is_array() ? *type : ordered_json::array({*type})) {
      if (one.is_string()) *to |= type_bit(one.get_ref<const std::string&>());
    }
    return;
  }
  const auto add_value = [&](const ordered_json& value) {
    *to |= value.is_string() ? ToolBook::kString : type_bits(value.is_structured() ? "[" : value.dump());
  };
  if (const ordered_json* value = member(&schema, "const")) add_value(*value);
  if (const ordered_json* values = member(&schema, "enum"); values != nullptr && values->is_array())
    std::for_each(values->begin(), values->end(), add_value);
  for (const char* name : {"anyOf", "oneOf"}) {
    const ordered_json* choices = member(&schema, name);
    if (choices == nullptr || !choices->is_array()) continue;
    for (const ordered_json& choice : *choices) add_types(choice, depth + 1, to);
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_json_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_json_blank(text.back())) text.remove_suffix(1);
  return text;
}

void append_escaped(char c, std::string* to) {
  if (c == '"' || c == '\\') {
    to->push_back('\\');
    to->push_back(c);
  } else if (static_cast<unsigned char>(c) < 0x20) {
    *to += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : fmt::format("\\u{:04x}", static_cast<int>(c));
  } else {
    to->push_back(c);
  }
}

std::string json_text(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) append_escaped(c, &made);
  return made + '"';
}

// A value that was written without saying what it is, as JSON. What is of none of the types stays what it looks like.
std::string value_json(const std::string& written, unsigned types) {
  std::string text(trimmed(written));
  // As templates write these in the calls of past turns.
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (const auto& [word, json] : kWords) {
    if (text == word && (types & type_bits(json)) != 0) text = json;
  }
  if (!is_json(text)) return json_text(written);
  const bool fits = types == 0 || (types & type_bits(text) & ~ToolBook::kString) != 0;
  return fits || (types & ToolBook::kString) == 0 ? text : json_text(written);
}

class XmlCallReader final : public CallReader {
 public:
  XmlCallReader(const ToolBook& tools, bool inside, size_t value_bytes_max)
      : tools_(tools), value_bytes_max_(value_bytes_max), at_(inside ? At::kName : At::kFunction) {}

  Step take(char c, CallSink& sink) override {
    switch (at_) {
      case At::kFunction:
        return open_function(c);
      case At::kName:
        return name(c, sink);
      case At::kBody:
        return body(c, sink);
      case At::kParameter:
        return parameter(c, sink);
      case At::kValue:
        return value(c, sink);
      case At::kClose:
        break;
    }
    return close(c);
  }

  std::string rest() const override {
    if (at_ == At::kParameter) return "<parameter=" + text_;
    if (at_ == At::kBody) return std::string(std::max(tag_.taken(), end_.taken()));
    if (at_ != At::kValue) return std::string(tag_.taken());
    return value_ + (newline_ ? "\n" : "") + std::string(tag_.taken());
  }

 private:
  enum class At : uint8_t { kFunction, kName, kBody, kParameter, kValue, kClose };

  // White space and then `tag_`; true: taken.
  bool tag(char c, bool* whole) {
    *whole = false;
    if (tag_.taken().empty() && is_json_blank(c)) return true;
    const Literal::Step step = tag_.take(c);
    *whole = step == Literal::Step::kWhole;
    return step != Literal::Step::kOther;
  }

  Step open_function(char c) {
    bool whole = false;
    if (!tag(c, &whole)) return Step::kBad;
    if (whole) at_ = At::kName;
    return Step::kMore;
  }

  Step name(char c, CallSink& sink) {
    if (c != '>') {
      if (text_.size() >= ToolBook::kNameBytesMax) return Step::kBad;
      text_.push_back(c);
      return Step::kMore;
    }
    if (!tools_.knows(text_)) return Step::kBad;
    name_ = text_;
    sink.begin(name_);
    at_body();
    return Step::kMore;
  }

  void at_body() {
    at_ = At::kBody;
    tag_ = Literal("<parameter=");
    end_ = Literal("</function>");
  }

  // <parameter=P> or </function>, told apart by their second character.
  Step body(char c, CallSink& sink) {
    if (tag_.taken().empty() && end_.taken().empty() && is_json_blank(c)) return Step::kMore;
    const bool both = tag_.taken() == end_.taken();
    const bool last = tag_.taken().size() < end_.taken().size();
    const Literal::Step more = both || !last ? tag_.take(c) : Literal::Step::kOther;
    const Literal::Step end = both || last ? end_.take(c) : Literal::Step::kOther;
    if (more == Literal::Step::kWhole) {
      at_ = At::kParameter;
      text_.clear();
    } else if (end == Literal::Step::kWhole) {
      sink.arguments(names_.empty() ? "{}" : "}");
      sink.whole();
      at_ = At::kClose;
      tag_ = Literal("</tool_call>");
    } else if (more == Literal::Step::kOther && end == Literal::Step::kOther) {
      return Step::kBad;
    }
    return Step::kMore;
  }

  Step parameter(char c, CallSink& sink) {
    if (c != '>') {
      if (text_.size() >= kParameterBytesMax || c == '<' || c == '\n') return Step::kBad;
      text_.push_back(c);
      return Step::kMore;
    }
    if (text_.empty() || names_.size() >= kParametersMax) return Step::kBad;
    const std::string before = (names_.empty() ? "{" : ", ") + json_text(text_) + ": ";
    if (!names_.insert(text_).second) return Step::kBad;
    types_ = tools_.types(name_, text_);
    as_text_ = types_ == ToolBook::kString;
    sink.arguments(as_text_ ? before + '"' : before);
    at_ = At::kValue;
    tag_ = Literal("</parameter>");
    value_.clear();
    first_ = true;
    newline_ = false;
    return Step::kMore;
  }

  // Up to </parameter>; a line break behind the tag in front of it, and one before it, belong to the tags.
  Step value(char c, CallSink& sink) {
    if (value_.size() + kHeldOfTagMax >= value_bytes_max_) return Step::kBad;
    switch (tag_.take(c)) {
      case Literal::Step::kMore:
        return Step::kMore;
      case Literal::Step::kWhole:
        sink.arguments(as_text_ ? "\"" : value_json(value_, types_));
        at_body();
        return Step::kMore;
      case Literal::Step::kOther:
        break;
    }
    std::string now;
    if (!tag_.taken().empty()) {
      if (newline_) now.push_back('\n');
      newline_ = first_ = false;
      now += tag_.taken();
      tag_.reset();
      if (c == '<') {
        static_cast<void>(tag_.take(c));
        return put(now, sink);
      }
    }
    if (c == '\n' && first_) {
      first_ = false;
      return Step::kMore;
    }
    first_ = false;
    if (newline_) now.push_back('\n');
    newline_ = c == '\n';
    if (!newline_) now.push_back(c);
    return put(now, sink);
  }

  Step put(const std::string& text, CallSink& sink) {
    if (as_text_) {
      std::string escaped;
      for (const char c : text) append_escaped(c, &escaped);
      if (!escaped.empty()) sink.arguments(escaped);
      return Step::kMore;
    }
    value_ += text;
    return Step::kMore;
  }

  Step close(char c) {
    bool whole = false;
    if (!tag(c, &whole)) return Step::kBehind;
    return whole ? Step::kEnd : Step::kMore;
  }

  const ToolBook& tools_;
  size_t value_bytes_max_;
  At at_;
  Literal tag_{"<function="}, end_{"</function>"};
  std::string text_, name_, value_;
  std::set<std::string> names_;  // of parameters
  unsigned types_ = 0;
  bool as_text_ = false;  // the value is a text, and goes to the sink as it comes
  bool first_ = false;    // nothing of the value was read
  bool newline_ = false;  // held back
};

}  // namespace

ToolBook::ToolBook(ordered_json tools) : tools_(std::move(tools)) {
  if (!tools_.is_array()) tools_ = ordered_json::array();
}

const ordered_json* ToolBook::find(std::string_view name) const {
  for (const ordered_json& tool : tools_) {
    const ordered_json* function = member(&tool, "function");
    if (function == nullptr) function = &tool;
    const ordered_json* own = member(function, "name");
    if (own != nullptr && own->is_string() && own->get_ref<const std::string&>() == name) return function;
  }
  return nullptr;
}

bool ToolBook::knows(std::string_view name) const { return is_name(name) && (tools_.empty() || find(name) != nullptr); }

unsigned ToolBook::types(std::string_view tool, std::string_view parameter) const {
  unsigned types = 0;
  const ordered_json* properties = member(member(find(tool), "parameters"), "properties");
  if (const ordered_json* schema = member(properties, std::string(parameter))) add_types(*schema, 0, &types);
  return types;
}

std::unique_ptr<CallReader> xml_call_reader(const ToolBook& tools, bool inside, size_t value_bytes_max) {
  return std::make_unique<XmlCallReader>(tools, inside, value_bytes_max);
}

}  // namespace baton
