// Methods of strings, lists, dictionaries and loops.
#include <fmt/format.h>

#include <algorithm>

#include "baton/text/jinja/runtime.h"
#include "baton/text/jinja/strings.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

using Args = const Arguments&;

const Text& self_text(Args arguments) { return *arguments.positional[0].text; }

Result<Text> text_argument(const Value& value, std::string_view name) {
  if (!value.is_text()) return bad(fmt::format("{} must be a string, not a {}", name, type_name(value)));
  return *value.text;
}
Result<int64_t> integer_argument(const Value& value, std::string_view name) {
  if (!value.is_integral()) return bad(fmt::format("{} must be an integer, not a {}", name, type_name(value)));
  return value.as_int();
}

// ---- Strings.

template <Case kWhat>
Result<Value> cased(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  TextBuilder builder = runtime.new_text();
  append_cased(self_text(arguments), kWhat, &builder);
  return runtime.finish(builder, self_text(arguments).markup);
}

template <CharClass kWhat>
Result<Value> is_class(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  return Value::of_bool(is_all(self_text(arguments).view(), kWhat));
}

template <int kEnds>
Result<Value> strip_ends(Runtime& runtime, Args arguments) {
  Value chars = Value::none();
  BATON_OK(runtime.bind(arguments, 1, {"chars"}, &chars));
  if (chars.is_none()) return runtime.new_text(strip(self_text(arguments), nullptr, kEnds));
  BATON_TRY(const Text set, text_argument(chars, "chars"));
  BATON_OK(runtime.charge(uint64_t{set.size} * self_text(arguments).size / 64));
  return runtime.new_text(strip(self_text(arguments), &set, kEnds));
}

// A string or a tuple of strings, and the character range to look in.
template <bool kStart>
Result<Value> has_affix(Runtime& runtime, Args arguments) {
  Value values[3] = {Value(), Value::none(), Value::none()};
  BATON_OK(runtime.bind(arguments, 1, {"affix", "start", "end"}, values));
  if (!values[1].is_none() || !values[2].is_none()) {
    return fail(Code::kUnsupported, "start and end are not supported");
  }
  const std::string_view text = self_text(arguments).view();
  const bool is_tuple = values[0].is(Type::kList) && values[0].list->kind == ListKind::kTuple;
  const auto candidates = is_tuple ? values[0].list->span() : std::span<const Value>(&values[0], 1);
  for (const Value& candidate : candidates) {
    BATON_TRY(const Text affix, text_argument(candidate, "the argument"));
    if (kStart ? text.starts_with(affix.view()) : text.ends_with(affix.view())) return Value::of_bool(true);
  }
  return Value::of_bool(false);
}

template <bool kRight>
Result<Value> split_text(Runtime& runtime, Args arguments) {
  Value values[2] = {Value::none(), Value::of_int(-1)};
  BATON_OK(runtime.bind(arguments, 1, {"sep", "maxsplit"}, values));
  BATON_TRY(const int64_t maxsplit, integer_argument(values[1], "maxsplit"));
  const Text& text = self_text(arguments);
  if (values[0].is_none()) {
    if (kRight && maxsplit >= 0) return fail(Code::kUnsupported, "rsplit at white space with a limit");
    return runtime.new_texts(split_spaces(text, maxsplit));
  }
  BATON_TRY(const Text separator, text_argument(values[0], "sep"));
  if (separator.size == 0) return bad("the separator is empty");
  return runtime.new_texts(kRight ? split_right(text, separator.view(), maxsplit)
                                  : split(text, separator.view(), maxsplit));
}

template <bool kRight>
Result<Value> partition(Runtime& runtime, Args arguments) {
  Value value;
  BATON_OK(runtime.bind(arguments, 1, {"sep"}, &value));
  BATON_TRY(const Text separator, text_argument(value, "sep"));
  if (separator.size == 0) return bad("the separator is empty");
  const Text& text = self_text(arguments);
  const size_t found = kRight ? text.view().rfind(separator.view()) : text.view().find(separator.view());
  std::vector<Value> parts;
  if (found == std::string_view::npos) {
    const Value whole = runtime.new_text(text), empty = runtime.new_text("");
    parts = kRight ? std::vector{empty, empty, whole} : std::vector{whole, empty, empty};
  } else {
    const size_t after = found + separator.size;
    parts = {runtime.new_text(text.slice(0, found)), runtime.new_text(text.slice(found, separator.size)),
             runtime.new_text(text.slice(after, text.size - after))};
  }
  return runtime.new_list(parts, ListKind::kTuple);
}

Result<Value> splitlines(Runtime& runtime, Args arguments) {
  Value keepends = Value::of_bool(false);
  BATON_OK(runtime.bind(arguments, 1, {"keepends"}, &keepends));
  if (is_true(keepends)) return fail(Code::kUnsupported, "keepends is not supported");
  return runtime.new_texts(split_lines(self_text(arguments)));
}

Result<Value> replace(Runtime& runtime, Args arguments) {
  Value values[3] = {Value(), Value(), Value::of_int(-1)};
  BATON_OK(runtime.bind(arguments, 1, {"old", "new", "count"}, values));
  BATON_TRY(const Text from, text_argument(values[0], "old"));
  BATON_TRY(const Text to, text_argument(values[1], "new"));
  BATON_TRY(const int64_t count, integer_argument(values[2], "count"));
  TextBuilder builder = runtime.new_text();
  append_replaced(self_text(arguments), from.view(), to, count, &builder);
  return runtime.finish(builder, self_text(arguments).markup);
}

Result<Value> join(Runtime& runtime, Args arguments) {
  Value value;
  BATON_OK(runtime.bind(arguments, 1, {"iterable"}, &value));
  if (value.is_undefined()) return bad("the argument is undefined");
  BATON_TRY(const auto items, runtime.iterate(value));
  TextBuilder builder = runtime.new_text();
  for (size_t i = 0; i < items.size(); ++i) {
    BATON_TRY(const Text item, text_argument(items[i], "each item"));
    if (i > 0) builder.append(self_text(arguments));
    builder.append(item);
  }
  return runtime.finish(builder);
}

// Character index of a byte offset.
Value index_of(std::string_view text, size_t at) {
  return Value::of_int(static_cast<int64_t>(char_count(text.substr(0, at))));
}

template <bool kRight, bool kMust>
Result<Value> find(Runtime& runtime, Args arguments) {
  Value value;
  BATON_OK(runtime.bind(arguments, 1, {"sub"}, &value));
  BATON_TRY(const Text sub, text_argument(value, "sub"));
  const std::string_view text = self_text(arguments).view();
  const size_t at = kRight ? text.rfind(sub.view()) : text.find(sub.view());
  if (at != std::string_view::npos) return index_of(text, at);
  if (kMust) return bad("the substring is not there");
  return Value::of_int(-1);
}

Result<Value> count_text(Runtime& runtime, Args arguments) {
  Value value;
  BATON_OK(runtime.bind(arguments, 1, {"sub"}, &value));
  BATON_TRY(const Text sub, text_argument(value, "sub"));
  const std::string_view text = self_text(arguments).view();
  if (sub.size == 0) return Value::of_int(static_cast<int64_t>(char_count(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(sub.view()); at != text.npos; at = text.find(sub.view(), at + sub.size)) ++count;
  return Value::of_int(count);
}

template <bool kPrefix>
Result<Value> remove_affix(Runtime& runtime, Args arguments) {
  Value value;
  BATON_OK(runtime.bind(arguments, 1, {"affix"}, &value));
  BATON_TRY(const Text affix, text_argument(value, "the argument"));
  const Text& text = self_text(arguments);
  const bool has = kPrefix ? text.view().starts_with(affix.view()) : text.view().ends_with(affix.view());
  if (!has) return runtime.new_text(text);
  return runtime.new_text(text.slice(kPrefix ? affix.size : 0, text.size - affix.size));
}

// ljust, rjust, zfill: padding on one side. kSide -1: text at the right end.
template <int kSide>
Result<Value> justify(Runtime& runtime, Args arguments) {
  Value values[2] = {Value(), runtime.new_text(" ")};
  BATON_OK(runtime.bind(arguments, 1, {"width", "fillchar"}, values));
  BATON_TRY(const int64_t width, integer_argument(values[0], "width"));
  BATON_TRY(const Text fill, text_argument(values[1], "fillchar"));
  if (char_count(fill.view()) != 1) return bad("fillchar must be one character");
  const Text& text = self_text(arguments);
  const auto length = static_cast<int64_t>(char_count(text.view()));
  TextBuilder builder = runtime.new_text();
  if (kSide > 0) builder.append(text);
  for (int64_t i = length; i < width && !builder.overflowed(); ++i) builder.append(fill);
  if (kSide < 0) builder.append(text);
  return runtime.finish(builder);
}

// '{}', '{0}' and '{name}', without conversions and format specifications.
Result<Value> format(Runtime& runtime, Args arguments) {
  const Text& text = self_text(arguments);
  const std::string_view bytes = text.view();
  TextBuilder builder = runtime.new_text();
  size_t automatic = 1;
  for (size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if (c != '{' && c != '}') {
      const size_t end = std::min(bytes.find_first_of("{}", at), bytes.size());
      builder.append(text.slice(at, end - at));
      at = end;
      continue;
    }
    if (at + 1 < bytes.size() && bytes[at + 1] == c) {
      builder.append(text.slice(at, 1));
      at += 2;
      continue;
    }
    const size_t close = bytes.find('}', at);
    if (c == '}' || close == bytes.npos) return bad("a single brace in the format");
    const std::string_view field = bytes.substr(at + 1, close - at - 1);
    at = close + 1;
    if (field.find_first_of(".[:!{") != field.npos) {
      return fail(Code::kUnsupported, fmt::format("the format field '{}' is not supported", field));
    }
    const bool is_number = !field.empty() && field.size() < 6 && field.find_first_not_of("0123456789") == field.npos;
    const Value* value = nullptr;
    if (field.empty() || is_number) {
      size_t index = automatic;
      if (is_number) {
        index = 1;
        size_t number = 0;
        for (const char digit : field) number = number * 10 + static_cast<size_t>(digit - '0');
        index += number;
      } else {
        ++automatic;
      }
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    } else {
      for (const Arguments::Named& named : arguments.named) {
        if (named.name == field) value = &named.value;
      }
    }
    if (value == nullptr) return bad(fmt::format("there is no value for '{{{}}}'", field));
    BATON_OK(append_str(*value, &builder));
  }
  return runtime.finish(builder);
}

constexpr Callable kTextMethods[] = {{"capitalize", cased<Case::kCapitalize>},
                                     {"count", count_text},
                                     {"endswith", has_affix<false>},
                                     {"find", find<false, false>},
                                     {"format", format},
                                     {"index", find<false, true>},
                                     {"isalnum", is_class<CharClass::kAlnum>},
                                     {"isalpha", is_class<CharClass::kAlpha>},
                                     {"isdecimal", is_class<CharClass::kDecimal>},
                                     {"isdigit", is_class<CharClass::kDigit>},
                                     {"islower", is_class<CharClass::kLower>},
                                     {"isspace", is_class<CharClass::kSpace>},
                                     {"isupper", is_class<CharClass::kUpper>},
                                     {"join", join},
                                     {"ljust", justify<1>},
                                     {"lower", cased<Case::kLower>},
                                     {"lstrip", strip_ends<1>},
                                     {"partition", partition<false>},
                                     {"removeprefix", remove_affix<true>},
                                     {"removesuffix", remove_affix<false>},
                                     {"replace", replace},
                                     {"rfind", find<true, false>},
                                     {"rindex", find<true, true>},
                                     {"rjust", justify<-1>},
                                     {"rpartition", partition<true>},
                                     {"rsplit", split_text<true>},
                                     {"rstrip", strip_ends<2>},
                                     {"split", split_text<false>},
                                     {"splitlines", splitlines},
                                     {"startswith", has_affix<true>},
                                     {"strip", strip_ends<3>},
                                     {"title", cased<Case::kTitle>},
                                     {"upper", cased<Case::kUpper>}};

constexpr std::string_view kTextOthers[] = {"casefold",  "center",       "encode",    "expandtabs",  "format_map",
                                            "isascii",   "isidentifier", "isnumeric", "isprintable", "istitle",
                                            "maketrans", "swapcase",     "translate", "zfill"};

// ---- Dictionaries.

const Dict& self_dict(Args arguments) { return *arguments.positional[0].dict; }

Result<Value> dict_get(Runtime& runtime, Args arguments) {
  Value values[2] = {Value(), Value::none()};
  BATON_OK(runtime.bind(arguments, 1, {"key", "default"}, values));
  const Value* found = self_dict(arguments).find(values[0]);
  return found != nullptr ? *found : values[1];
}

Result<Value> dict_items(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  std::vector<Value> items;
  for (const Dict::Entry& entry : self_dict(arguments).span()) {
    const Value pair[] = {entry.key, entry.value};
    BATON_TRY(const Value item, runtime.new_list(pair, ListKind::kTuple));
    items.push_back(item);
  }
  return runtime.new_list(items, ListKind::kView);
}

template <bool kKeys>
Result<Value> dict_view(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  std::vector<Value> items;
  for (const Dict::Entry& entry : self_dict(arguments).span()) items.push_back(kKeys ? entry.key : entry.value);
  return runtime.new_list(items, ListKind::kView);
}

Result<Value> dict_copy(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  return arguments.positional[0];
}

constexpr Callable kDictMethods[] = {{"copy", dict_copy},
                                     {"get", dict_get},
                                     {"items", dict_items},
                                     {"keys", dict_view<true>},
                                     {"values", dict_view<false>}};

// Changing a value in place is what jinja2's immutable sandbox forbids.
constexpr std::string_view kDictOthers[] = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"};

// ---- Lists.

Result<Value> list_index(Runtime& runtime, Args arguments) {
  Value value;
  BATON_OK(runtime.bind(arguments, 1, {"value"}, &value));
  const auto items = arguments.positional[0].list->span();
  for (size_t i = 0; i < items.size(); ++i) {
    BATON_TRY(const bool same, equal(items[i], value));
    if (same) return Value::of_int(static_cast<int64_t>(i));
  }
  return bad("the value is not in the list");
}

Result<Value> list_count(Runtime& runtime, Args arguments) {
  Value value;
  BATON_OK(runtime.bind(arguments, 1, {"value"}, &value));
  int64_t count = 0;
  for (const Value& item : arguments.positional[0].list->span()) {
    BATON_TRY(const bool same, equal(item, value));
    count += same ? 1 : 0;
  }
  return Value::of_int(count);
}

Result<Value> list_copy(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  return arguments.positional[0];
}

constexpr Callable kListMethods[] = {{"copy", list_copy}, {"count", list_count}, {"index", list_index}};
constexpr std::string_view kListOthers[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};

// ---- Loops.

Result<Value> loop_cycle(Runtime&, Args arguments) {
  const size_t count = arguments.positional.size() - 1;
  if (count == 0 || !arguments.named.empty()) return bad("takes at least one value");
  return arguments.positional[1 + arguments.positional[0].loop->index0 % count];
}

Result<Value> loop_changed(Runtime& runtime, Args arguments) {
  const Loop& loop = *arguments.positional[0].loop;
  BATON_TRY(const Value now, runtime.new_list(arguments.positional.subspan(1), ListKind::kTuple));
  const Value* last = *loop.changed;
  *loop.changed = runtime.heap()->make(now);
  if (last == nullptr) return Value::of_bool(true);
  BATON_TRY(const bool same, equal(*last, now));
  return Value::of_bool(!same);
}

constexpr Callable kLoopMethods[] = {{"changed", loop_changed}, {"cycle", loop_cycle}};

constexpr std::string_view kNumberOthers[] = {"real",       "imag",      "numerator", "denominator", "conjugate",
                                              "bit_length", "bit_count", "to_bytes",  "from_bytes",  "as_integer_ratio",
                                              "is_integer", "hex",       "fromhex"};
constexpr std::string_view kMacroOthers[] = {"name", "arguments", "catch_kwargs", "catch_varargs", "caller"};

std::span<const Callable> methods_of(Type type) {
  switch (type) {
    case Type::kText:
      return kTextMethods;
    case Type::kDict:
      return kDictMethods;
    case Type::kList:
      return kListMethods;
    case Type::kLoop:
      return kLoopMethods;
    default:
      return {};
  }
}

}  // namespace

const Callable* find_method(Type type, std::string_view name) {
  const auto methods = methods_of(type);
  const auto found =
      std::find_if(methods.begin(), methods.end(), [&](const Callable& callable) { return callable.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

bool is_python_attribute(Type type, std::string_view name) {
  const auto is_in = [&](std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  switch (type) {
    case Type::kText:
      return is_in(kTextOthers);
    case Type::kDict:
      return is_in(kDictOthers);
    case Type::kList:
      return is_in(kListOthers);
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
      return is_in(kNumberOthers);
    case Type::kFunction:
      return is_in(kMacroOthers);
    default:
      return false;
  }
}

}  // namespace baton::jinja
