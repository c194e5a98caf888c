// Filters on strings, numbers and single values. Those on sequences: sequence_filters.cc.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "baton/text/jinja/filter_lists.h"
#include "baton/text/jinja/strings.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

using Args = const Arguments&;

Result<int64_t> integer_argument(const Value& value, std::string_view name) {
  if (!value.is_integral()) return bad(fmt::format("{} must be an integer, not a {}", name, type_name(value)));
  return value.as_int();
}

// ---- Strings.

template <Case kWhat>
Result<Value> cased(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  TextBuilder builder = runtime.new_text();
  append_cased(text, kWhat, &builder);
  return runtime.finish(builder, text.markup);
}

// jinja2's own: words begin after white space and - ( { [ <; the rest of each is lowered.
Result<Value> title(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  const std::string_view bytes = text.view();
  const auto is_border = [](uint32_t code) {
    return is_python_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
  };
  TextBuilder builder = runtime.new_text();
  for (size_t at = 0; at < bytes.size();) {
    size_t end = at;
    const bool border = is_border(decode_utf8(bytes, at).code);
    while (end < bytes.size() && is_border(decode_utf8(bytes, end).code) == border)
      end += decode_utf8(bytes, end).length;
    const size_t first = decode_utf8(bytes, at).length;
    append_cased(text.slice(at, first), Case::kUpper, &builder);
    append_cased(text.slice(at + first, end - at - first), Case::kLower, &builder);
    at = end;
  }
  return runtime.finish(builder, text.markup);
}

Result<Value> trim(Runtime& runtime, Args arguments) {
  Value chars = Value::none();
  BATON_OK(runtime.bind(arguments, 1, {"chars"}, &chars));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  if (chars.is_none()) return runtime.new_text(strip(text, nullptr, 3));
  if (!chars.is_text()) return bad("chars must be a string");
  BATON_OK(runtime.charge(uint64_t{chars.text->size} * text.size / 64));
  return runtime.new_text(strip(text, chars.text, 3));
}

Result<Value> replace(Runtime& runtime, Args arguments) {
  Value values[3] = {Value(), Value(), Value::none()};
  BATON_OK(runtime.bind(arguments, 1, {"old", "new", "count"}, values));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  BATON_TRY(const Text from, runtime.to_text(values[0]));
  BATON_TRY(const Text to, runtime.to_text(values[1]));
  int64_t count = -1;
  if (!values[2].is_none()) {
    BATON_TRY(count, integer_argument(values[2], "count"));
  }
  TextBuilder builder = runtime.new_text();
  append_replaced(text, from.view(), to, count, &builder);
  return runtime.finish(builder);
}

Result<Value> indent(Runtime& runtime, Args arguments) {
  Value values[3] = {Value::of_int(4), Value::of_bool(false), Value::of_bool(false)};
  BATON_OK(runtime.bind(arguments, 1, {"width", "first", "blank"}, values));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  Text margin;
  if (values[0].is_text()) {
    margin = *values[0].text;
  } else {
    BATON_TRY(const int64_t width, integer_argument(values[0], "width"));
    if (width > 10000) return bad("the width is above 10000");
    margin = *runtime.new_text(std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' ')).text;
  }
  // As jinja2: one line break more before splitting, so that a last empty line survives.
  TextBuilder with_break = runtime.new_text();
  with_break.append(text);
  with_break.append_literal("\n");
  BATON_TRY(const Value whole, runtime.finish(with_break));
  const std::vector<Text> lines = split_lines(*whole.text);
  TextBuilder builder = runtime.new_text();
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool margined = i == 0 ? is_true(values[1]) : is_true(values[2]) || lines[i].size > 0;
    if (i > 0) builder.append_literal("\n");
    if (margined) builder.append(margin);
    builder.append(lines[i]);
  }
  return runtime.finish(builder);
}

Result<Value> truncate(Runtime& runtime, Args arguments) {
  Value values[4] = {Value::of_int(255), Value::of_bool(false), runtime.new_text("..."), Value::of_int(5)};
  BATON_OK(runtime.bind(arguments, 1, {"length", "killwords", "end", "leeway"}, values));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  BATON_TRY(const Text end, runtime.to_text(values[2]));
  BATON_TRY(const int64_t length, integer_argument(values[0], "length"));
  BATON_TRY(const int64_t leeway, integer_argument(values[3], "leeway"));
  const auto end_chars = static_cast<int64_t>(char_count(end.view()));
  if (length < end_chars || leeway < 0 || length > (int64_t{1} << 40) || leeway > (int64_t{1} << 40)) {
    return bad("length or leeway is out of range");
  }
  if (static_cast<int64_t>(char_count(text.view())) <= length + leeway) return runtime.new_text(text);
  Text kept = text.slice(0, char_offset(text.view(), static_cast<size_t>(length - end_chars)));
  if (!is_true(values[1])) {
    const size_t space = kept.view().rfind(' ');
    if (space != std::string_view::npos) kept = kept.slice(0, space);
  }
  TextBuilder builder = runtime.new_text();
  builder.append(kept);
  builder.append(end);
  return runtime.finish(builder);
}

Result<Value> center(Runtime& runtime, Args arguments) {
  Value value = Value::of_int(80);
  BATON_OK(runtime.bind(arguments, 1, {"width"}, &value));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  BATON_TRY(const int64_t width, integer_argument(value, "width"));
  if (width > 1'000'000) return bad("the width is above 1000000");
  const auto missing = std::max<int64_t>(0, width - static_cast<int64_t>(char_count(text.view())));
  const int64_t left = missing / 2 + (missing & width & 1);  // as Python rounds
  TextBuilder builder = runtime.new_text();
  builder.append_literal(std::string(static_cast<size_t>(left), ' '));
  builder.append(text);
  builder.append_literal(std::string(static_cast<size_t>(missing - left), ' '));
  return runtime.finish(builder);
}

Result<Value> wordcount(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size;) {
    const size_t length = decode_utf8(text.view(), at).length;
    const std::string_view c = text.view().substr(at, length);
    const bool word = c == "_" || is_all(c, CharClass::kAlnum);
    count += word && !in_word ? 1 : 0;
    in_word = word;
    at += length;
  }
  return Value::of_int(count);
}

Result<Value> format(Runtime& runtime, Args arguments) {
  if (!arguments.named.empty()) return fail(Code::kUnsupported, "named values are not supported");
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  return format_percent(runtime, text, arguments.positional.subspan(1));
}

Result<Value> string(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  return runtime.new_text(text);
}

Result<Value> safe(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  BATON_TRY(Text text, runtime.to_text(subject(arguments)));
  text.markup = true;
  return runtime.new_text(text);
}

template <bool kForce>
Result<Value> escape(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  if (text.markup && !kForce) return runtime.new_text(text);
  TextBuilder builder = runtime.new_text();
  append_escaped(text, &builder);
  return runtime.finish(builder, true);
}

Result<Value> tojson(Runtime& runtime, Args arguments) {
  Value values[4] = {Value::of_bool(false), Value::none(), Value::none(), Value::of_bool(false)};
  BATON_OK(runtime.bind(arguments, 1, {"ensure_ascii", "indent", "separators", "sort_keys"}, values));
  // jinja2's own signature has the indent first: tojson(4).
  if (arguments.positional.size() > 1 && !values[0].is(Type::kBool)) {
    return fail(Code::kUnsupported, "give indent by name: tojson(indent=4)");
  }
  JsonFormat format;
  format.ensure_ascii = is_true(values[0]);
  format.sort_keys = is_true(values[3]);
  if (values[1].is_text()) {
    format.has_indent_text = true;
    format.indent_text = *values[1].text;
  } else if (!values[1].is_none()) {
    BATON_TRY(format.indent, integer_argument(values[1], "indent"));
    format.indent = std::max<int64_t>(0, format.indent);
    if (format.indent > 100) return bad("the indent is above 100");
  }
  if (format.indent >= 0 || format.has_indent_text) format.item_separator = ",";
  if (!values[2].is_none()) {
    BATON_TRY(const auto separators, runtime.iterate(values[2]));
    if (separators.size() != 2 || !separators[0].is_text() || !separators[1].is_text()) {
      return bad("separators must be two strings");
    }
    format.item_separator = separators[0].view();
    format.key_separator = separators[1].view();
  }
  TextBuilder builder = runtime.new_text();
  BATON_OK(append_json(subject(arguments), format, &builder));
  return runtime.finish(builder);
}

// ---- Numbers.

Result<Value> absolute(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  const Value& value = subject(arguments);
  if (!value.is_number()) return bad(fmt::format("needs a number, not a {}", type_name(value)));
  if (value.is(Type::kFloat)) return Value::of_float(std::fabs(value.real));
  if (value.as_int() >= 0) return Value::of_int(value.as_int());
  return arithmetic(runtime, Op::kSubtract, Value::of_int(0), value);
}

// Python's int(text, base): signs, underscores between digits, white space around.
bool parse_integer(std::string_view text, int base, int64_t* value) {
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const auto prefixed = [&](char letter) { return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter; };
  if ((base == 16 && prefixed('x')) || (base == 8 && prefixed('o')) || (base == 2 && prefixed('b')))
    text.remove_prefix(2);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_') continue;
    digits.push_back(text[i]);
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return false;
  if (negative) digits.insert(0, 1, '-');
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), *value, base);
  return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
}

Result<Value> to_int(Runtime& runtime, Args arguments) {
  Value values[2] = {Value::of_int(0), Value::of_int(10)};
  BATON_OK(runtime.bind(arguments, 1, {"default", "base"}, values));
  BATON_TRY(const int64_t base, integer_argument(values[1], "base"));
  if (base != 2 && base != 8 && base != 10 && base != 16) return fail(Code::kUnsupported, fmt::format("base {}", base));
  const Value& value = subject(arguments);
  double real = 0.0;
  if (value.is_integral()) return Value::of_int(value.as_int());
  if (value.is_text()) {
    const Text text = strip(*value.text, nullptr, 3);
    int64_t integer = 0;
    if (parse_integer(text.view(), static_cast<int>(base), &integer)) return Value::of_int(integer);
    if (!parse_float(text.view(), &real)) return values[0];
  } else if (value.is(Type::kFloat)) {
    real = value.real;
  } else {
    return values[0];
  }
  if (!std::isfinite(real)) return values[0];
  if (std::fabs(real) >= 9.2e18) return bad("an integer above 64 bits");
  return Value::of_int(static_cast<int64_t>(real));
}

Result<Value> to_float(Runtime& runtime, Args arguments) {
  Value otherwise = Value::of_float(0.0);
  BATON_OK(runtime.bind(arguments, 1, {"default"}, &otherwise));
  const Value& value = subject(arguments);
  if (value.is_number()) return Value::of_float(value.as_float());
  double real = 0.0;
  if (value.is_text() && parse_float(strip(*value.text, nullptr, 3).view(), &real)) return Value::of_float(real);
  return otherwise;
}

Result<Value> round_number(Runtime& runtime, Args arguments) {
  Value values[2] = {Value::of_int(0), runtime.new_text("common")};
  BATON_OK(runtime.bind(arguments, 1, {"precision", "method"}, values));
  const Value& value = subject(arguments);
  if (!value.is_number()) return bad(fmt::format("needs a number, not a {}", type_name(value)));
  BATON_TRY(const int64_t precision, integer_argument(values[0], "precision"));
  if (precision < 0 || precision > 300) return fail(Code::kUnsupported, "a precision below 0 or above 300");
  const double number = value.as_float();
  const std::string_view method = values[1].is_text() ? values[1].view() : "";
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    return Value::of_float((method == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale);
  }
  if (method != "common") return bad("the method must be common, ceil or floor");
  if (!value.is(Type::kFloat)) return Value::of_int(value.as_int());
  if (!std::isfinite(number)) return value;
  // Correctly rounded decimal digits, as Python's round.
  char buffer[700];
  const auto made =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed, static_cast<int>(precision));
  double rounded = 0.0;
  if (made.ec != std::errc() || !parse_float({buffer, static_cast<size_t>(made.ptr - buffer)}, &rounded)) {
    return bad("the number cannot be rounded");
  }
  return Value::of_float(rounded);
}

// ---- Any value.

Result<Value> otherwise(Runtime& runtime, Args arguments) {
  Value values[2] = {runtime.new_text(""), Value::of_bool(false)};
  BATON_OK(runtime.bind(arguments, 1, {"default_value", "boolean"}, values));
  const Value& value = subject(arguments);
  if (value.is_undefined() || (is_true(values[1]) && !is_true(value))) return values[0];
  return value;
}

Result<Value> attr(Runtime& runtime, Args arguments) {
  Value name;
  BATON_OK(runtime.bind(arguments, 1, {"name"}, &name));
  if (!name.is_text()) return bad("the name must be a string");
  if (subject(arguments).is(Type::kDict)) {
    // Only Python's attributes, never items.
    if (find_method(Type::kDict, name.view()) == nullptr) return Value();
  }
  return runtime.attribute(subject(arguments), name.view());
}

constexpr Callable kFilters[] = {{"abs", absolute},
                                 {"attr", attr},
                                 {"capitalize", cased<Case::kCapitalize>},
                                 {"center", center},
                                 {"d", otherwise},
                                 {"default", otherwise},
                                 {"e", escape<false>},
                                 {"escape", escape<false>},
                                 {"float", to_float},
                                 {"forceescape", escape<true>},
                                 {"format", format},
                                 {"indent", indent},
                                 {"int", to_int},
                                 {"lower", cased<Case::kLower>},
                                 {"replace", replace},
                                 {"round", round_number},
                                 {"safe", safe},
                                 {"string", string},
                                 {"title", title},
                                 {"tojson", tojson},
                                 {"trim", trim},
                                 {"truncate", truncate},
                                 {"upper", cased<Case::kUpper>},
                                 {"wordcount", wordcount}};

}  // namespace

const Callable* find_filter(std::string_view name) {
  for (const std::span<const Callable> list : {std::span<const Callable>(kFilters), sequence_filters()}) {
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const Callable& callable) { return callable.name == name; });
    if (found != list.end()) return &*found;
  }
  return nullptr;
}

}  // namespace baton::jinja
