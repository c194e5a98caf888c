// Filters that go through sequences: length, first, join, map, select, sort and their kin.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "baton/text/jinja/filter_lists.h"
#include "baton/text/jinja/strings.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

using Args = const Arguments&;

Result<Value> length(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  const Value& value = subject(arguments);
  switch (value.type) {
    case Type::kUndefined:
      return Value::of_int(0);
    case Type::kText:
      return Value::of_int(static_cast<int64_t>(char_count(value.view())));
    case Type::kDict:
      return Value::of_int(static_cast<int64_t>(value.dict->count));
    case Type::kLoop:
      return Value::of_int(static_cast<int64_t>(value.loop->items.size()));
    case Type::kList:
      if (value.list->kind != ListKind::kGenerator) return Value::of_int(static_cast<int64_t>(value.list->count));
      [[fallthrough]];
    default:
      return bad(fmt::format("a {} has no length", type_name(value)));
  }
}

Result<Value> first(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  const Value& value = subject(arguments);
  if (value.is_text() && value.text->size > 0) {
    return runtime.new_text(value.text->slice(0, decode_utf8(value.view(), 0).length));
  }
  BATON_TRY(const auto items, runtime.iterate(value));
  return items.empty() ? Value::undefined(runtime.new_text("the first of nothing").text) : items.front();
}

Result<Value> last(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  const Value& value = subject(arguments);
  if (value.is(Type::kList) && value.list->kind == ListKind::kGenerator) return bad("a generator has no end");
  if (value.is_undefined()) return bad("the value is undefined");
  BATON_TRY(const auto items, runtime.iterate(value));
  return items.empty() ? Value::undefined(runtime.new_text("the last of nothing").text) : items.back();
}

Result<Value> list(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  BATON_TRY(const auto items, runtime.iterate(subject(arguments)));
  return runtime.new_list(items);
}

Result<Value> reverse(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  const Value& value = subject(arguments);
  BATON_TRY(const auto items, runtime.iterate(value));
  std::vector<Value> reversed(items.rbegin(), items.rend());
  if (!value.is_text()) {
    // A generator becomes a list, everything else an iterator.
    const bool is_generator = value.is(Type::kList) && value.list->kind == ListKind::kGenerator;
    return runtime.new_list(reversed, is_generator ? ListKind::kList : ListKind::kGenerator);
  }
  TextBuilder builder = runtime.new_text();
  for (const Value& item : reversed) builder.append(*item.text);
  return runtime.finish(builder);
}

Result<Value> items(Runtime& runtime, Args arguments) {
  BATON_OK(runtime.bind(arguments, 1, {}, nullptr));
  const Value& value = subject(arguments);
  if (!value.is_undefined() && !value.is(Type::kDict)) return bad("can only get item pairs from a mapping");
  std::vector<Value> pairs;
  if (value.is(Type::kDict)) {
    for (const Dict::Entry& entry : value.dict->span()) {
      const Value pair[] = {entry.key, entry.value};
      BATON_TRY(const Value made, runtime.new_list(pair, ListKind::kTuple));
      pairs.push_back(made);
    }
  }
  return runtime.new_list(pairs, ListKind::kGenerator);
}

// ---- Attribute paths: "a.b.0", or a number.

Result<Value> follow(Runtime& runtime, Value value, const Value& path, const Value* otherwise) {
  if (path.is_none()) return value;
  if (path.is_integral()) return runtime.item(value, path);
  if (!path.is_text()) return bad("an attribute must be a string or a number");
  for (const Text& part : split(*path.text, ".", -1)) {
    const std::string_view name = part.view();
    const bool is_number = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
    Value key = runtime.new_text(part);
    if (is_number) {
      int64_t number = 0;
      std::from_chars(name.data(), name.data() + name.size(), number);
      key = Value::of_int(number);
    }
    BATON_TRY(value, runtime.item(value, key));
    if (otherwise != nullptr && !otherwise->is_none() && value.is_undefined()) value = *otherwise;
  }
  return value;
}

Result<Value> join_filter(Runtime& runtime, Args arguments) {
  Value values[2] = {runtime.new_text(""), Value::none()};
  BATON_OK(runtime.bind(arguments, 1, {"d", "attribute"}, values));
  BATON_TRY(const auto sequence, runtime.iterate(subject(arguments)));
  BATON_TRY(const Text separator, runtime.to_text(values[0]));
  TextBuilder builder = runtime.new_text();
  for (size_t i = 0; i < sequence.size() && !builder.overflowed(); ++i) {
    BATON_TRY(const Value item, follow(runtime, sequence[i], values[1], nullptr));
    if (i > 0) builder.append(separator);
    BATON_OK(append_str(item, &builder));
  }
  return runtime.finish(builder);
}

Result<Value> map(Runtime& runtime, Args arguments) {
  if (!is_true(subject(arguments))) return runtime.new_list({}, ListKind::kGenerator);  // none too, as jinja2
  BATON_TRY(const auto sequence, runtime.iterate(subject(arguments)));
  std::vector<Value> mapped;
  if (arguments.positional.size() == 1) {
    Value values[2] = {Value::none(), Value::none()};
    BATON_OK(runtime.bind(arguments, 1, {"attribute", "default"}, values));
    if (values[0].is_none()) return bad("needs a filter or attribute=");
    for (const Value& item : sequence) {
      BATON_OK(runtime.charge(1));
      BATON_TRY(const Value value, follow(runtime, item, values[0], &values[1]));
      mapped.push_back(value);
    }
    return runtime.new_list(mapped, ListKind::kGenerator);
  }
  if (!arguments.positional[1].is_text()) return bad("the filter must be a string");
  const Callable* filter = find_filter(arguments.positional[1].view());
  if (filter == nullptr) {
    return fail(Code::kUnsupported, fmt::format("there is no filter '{}'", arguments.positional[1].view()));
  }
  std::vector<Value> inner(arguments.positional.begin() + 1, arguments.positional.end());
  for (const Value& item : sequence) {
    inner[0] = item;
    BATON_TRY(const Value value, runtime.call(*filter, {inner, arguments.named}));
    mapped.push_back(value);
  }
  return runtime.new_list(mapped, ListKind::kGenerator);
}

template <bool kKeep, bool kAttribute>
Result<Value> select(Runtime& runtime, Args arguments) {
  if (!is_true(subject(arguments))) return runtime.new_list({}, ListKind::kGenerator);  // none too, as jinja2
  BATON_TRY(const auto sequence, runtime.iterate(subject(arguments)));
  const size_t test_at = kAttribute ? 2 : 1;
  if (kAttribute && arguments.positional.size() < 2) return bad("needs an attribute");
  const Callable* test = nullptr;
  std::vector<Value> inner(1);
  if (arguments.positional.size() > test_at) {
    const Value& name = arguments.positional[test_at];
    test = name.is_text() ? find_test(name.view()) : nullptr;
    if (test == nullptr) {
      return fail(Code::kUnsupported, fmt::format("there is no test '{}'", name.is_text() ? name.view() : "?"));
    }
    inner.insert(inner.end(), arguments.positional.begin() + static_cast<ptrdiff_t>(test_at) + 1,
                 arguments.positional.end());
  }
  std::vector<Value> kept;
  for (const Value& item : sequence) {
    BATON_OK(runtime.charge(1));
    inner[0] = item;
    if (kAttribute) {
      BATON_TRY(inner[0], follow(runtime, item, arguments.positional[1], nullptr));
    }
    Value holds = inner[0];
    if (test != nullptr) {
      BATON_TRY(holds, runtime.call(*test, {inner, arguments.named}));
    }
    if (is_true(holds) == kKeep) kept.push_back(item);
  }
  return runtime.new_list(kept, ListKind::kGenerator);
}

// ---- Order.

// What sorting looks at: the attribute, lowered unless case matters.
Result<Value> sort_key(Runtime& runtime, const Value& item, const Value& attribute, bool case_sensitive) {
  BATON_TRY(const Value key, follow(runtime, item, attribute, nullptr));
  if (case_sensitive || !key.is_text()) return key;
  TextBuilder builder = runtime.new_text();
  append_cased(*key.text, Case::kLower, &builder);
  return runtime.finish(builder);
}

struct Keyed {
  Value key, item;
};

Result<std::vector<Keyed>> keyed(Runtime& runtime, std::span<const Value> sequence, const Value& attribute,
                                 bool case_sensitive) {
  std::vector<Keyed> list;
  list.reserve(sequence.size());
  if (attribute.is_text() && attribute.view().find(',') != std::string_view::npos) {
    return fail(Code::kUnsupported, "several attributes");
  }
  for (const Value& item : sequence) {
    BATON_OK(runtime.charge(1));
    BATON_TRY(const Value key, sort_key(runtime, item, attribute, case_sensitive));
    list.push_back({key, item});
  }
  return list;
}

// A merge sort: stable, and it stops at the first pair without order or when the work is too much.
Status sort_keyed(Runtime& runtime, std::vector<Keyed>* list, bool reverse) {
  std::vector<Keyed> from = *list, to(list->size());
  for (size_t width = 1; width < from.size(); width *= 2) {
    for (size_t begin = 0; begin < from.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, from.size()), end = std::min(begin + 2 * width, from.size());
      size_t left = begin, right = middle, at = begin;
      while (left < middle && right < end) {
        BATON_OK(runtime.charge(1));
        // As jinja2 compares one-element lists: values that are equal need no order.
        BATON_TRY(const bool same, equal(from[left].key, from[right].key));
        int order = 0;
        if (!same) {
          BATON_TRY(order, compare(from[left].key, from[right].key));
        }
        const bool take_left = reverse ? order >= 0 : order <= 0;
        to[at++] = take_left ? from[left++] : from[right++];
      }
      while (left < middle) to[at++] = from[left++];
      while (right < end) to[at++] = from[right++];
    }
    from.swap(to);
  }
  *list = std::move(from);
  return {};
}

Result<Value> sort(Runtime& runtime, Args arguments) {
  Value values[3] = {Value::of_bool(false), Value::of_bool(false), Value::none()};
  BATON_OK(runtime.bind(arguments, 1, {"reverse", "case_sensitive", "attribute"}, values));
  BATON_TRY(const auto sequence, runtime.iterate(subject(arguments)));
  BATON_TRY(auto list, keyed(runtime, sequence, values[2], is_true(values[1])));
  BATON_OK(sort_keyed(runtime, &list, is_true(values[0])));
  std::vector<Value> sorted;
  for (const Keyed& entry : list) sorted.push_back(entry.item);
  return runtime.new_list(sorted);
}

Result<Value> dictsort(Runtime& runtime, Args arguments) {
  Value values[3] = {Value::of_bool(false), runtime.new_text("key"), Value::of_bool(false)};
  BATON_OK(runtime.bind(arguments, 1, {"case_sensitive", "by", "reverse"}, values));
  if (!subject(arguments).is(Type::kDict)) return bad("needs a mapping");
  const std::string_view by = values[1].is_text() ? values[1].view() : "";
  if (by != "key" && by != "value") return bad("'by' must be 'key' or 'value'");
  BATON_TRY(const Value pairs, items(runtime, {arguments.positional.first(1), {}}));
  BATON_TRY(auto list, keyed(runtime, pairs.list->span(), Value::of_int(by == "key" ? 0 : 1), is_true(values[0])));
  BATON_OK(sort_keyed(runtime, &list, is_true(values[2])));
  std::vector<Value> sorted;
  for (const Keyed& entry : list) sorted.push_back(entry.item);
  return runtime.new_list(sorted);
}

template <bool kMin>
Result<Value> extreme(Runtime& runtime, Args arguments) {
  Value values[2] = {Value::of_bool(false), Value::none()};
  BATON_OK(runtime.bind(arguments, 1, {"case_sensitive", "attribute"}, values));
  BATON_TRY(const auto sequence, runtime.iterate(subject(arguments)));
  if (sequence.empty()) return Value::undefined(runtime.new_text("the extreme of nothing").text);
  BATON_TRY(const auto list, keyed(runtime, sequence, values[1], is_true(values[0])));
  const Keyed* best = &list[0];
  for (const Keyed& entry : list) {
    BATON_TRY(const int order, compare(entry.key, best->key));
    if (kMin ? order < 0 : order > 0) best = &entry;
  }
  return best->item;
}

Result<Value> unique(Runtime& runtime, Args arguments) {
  Value values[2] = {Value::of_bool(false), Value::none()};
  BATON_OK(runtime.bind(arguments, 1, {"case_sensitive", "attribute"}, values));
  BATON_TRY(const auto sequence, runtime.iterate(subject(arguments)));
  BATON_TRY(const auto list, keyed(runtime, sequence, values[1], is_true(values[0])));
  std::vector<Dict::Entry> seen;
  for (const Keyed& entry : list) {
    if (!entry.key.is_text() && !entry.key.is_number() && !entry.key.is_none()) {
      return bad(fmt::format("a {} has no hash", type_name(entry.key)));
    }
    seen.push_back({entry.key, entry.item});
  }
  // A dictionary keeps the first place of a key; going backwards, the first item wins too.
  std::reverse(seen.begin(), seen.end());
  const Value last_wins = make_dict(runtime.heap(), seen);
  std::vector<Value> kept;
  std::reverse(seen.begin(), seen.end());
  const Value in_order = make_dict(runtime.heap(), seen);
  for (const Dict::Entry& entry : in_order.dict->span()) kept.push_back(*last_wins.dict->find(entry.key));
  return runtime.new_list(kept, ListKind::kGenerator);
}

Result<Value> sum(Runtime& runtime, Args arguments) {
  Value values[2] = {Value::none(), Value::of_int(0)};
  BATON_OK(runtime.bind(arguments, 1, {"attribute", "start"}, values));
  BATON_TRY(const auto sequence, runtime.iterate(subject(arguments)));
  Value total = values[1];
  if (total.is_text()) return bad("strings cannot be summed");
  for (const Value& item : sequence) {
    BATON_OK(runtime.charge(1));
    BATON_TRY(const Value value, follow(runtime, item, values[0], nullptr));
    BATON_TRY(total, arithmetic(runtime, Op::kAdd, total, value));
  }
  return total;
}

Result<Value> batch(Runtime& runtime, Args arguments) {
  Value values[2] = {Value(), Value::none()};
  BATON_OK(runtime.bind(arguments, 1, {"linecount", "fill_with"}, values));
  if (!values[0].is_integral() || values[0].as_int() < 1) return bad("linecount must be a positive integer");
  BATON_TRY(const auto sequence, runtime.iterate(subject(arguments)));
  const auto size = static_cast<size_t>(values[0].as_int());
  if (size > runtime.limits().items_max) return bad("linecount is too large");
  std::vector<Value> lines;
  for (size_t at = 0; at < sequence.size(); at += size) {
    const auto part = sequence.subspan(at, std::min(size, sequence.size() - at));
    std::vector<Value> line(part.begin(), part.end());
    if (!values[1].is_none()) line.resize(size, values[1]);
    BATON_TRY(const Value made, runtime.new_list(line));
    lines.push_back(made);
  }
  return runtime.new_list(lines, ListKind::kGenerator);
}

// Python's generators run when they are gone through: until then their errors wait, and may never come.
template <Result<Value> (*kRun)(Runtime&, Args)>
Result<Value> lazy(Runtime& runtime, Args arguments) {
  Result<Value> value = kRun(runtime, arguments);
  if (value || value.error().code != Code::kInvalidInput) return value;
  BATON_OK(runtime.charge(1));  // limits do not wait
  List generator;
  generator.kind = ListKind::kGenerator;
  generator.failure = runtime.new_text(value.error().message).text;
  return Value::of_list(runtime.heap()->make(generator));
}

constexpr Callable kSequenceFilters[] = {{"batch", lazy<batch>},
                                         {"count", length},
                                         {"dictsort", dictsort},
                                         {"first", first},
                                         {"items", lazy<items>},
                                         {"join", join_filter},
                                         {"last", last},
                                         {"length", length},
                                         {"list", list},
                                         {"map", lazy<map>},
                                         {"max", extreme<false>},
                                         {"min", extreme<true>},
                                         {"reject", lazy<select<false, false>>},
                                         {"rejectattr", lazy<select<false, true>>},
                                         {"reverse", reverse},
                                         {"select", lazy<select<true, false>>},
                                         {"selectattr", lazy<select<true, true>>},
                                         {"sort", sort},
                                         {"sum", sum},
                                         {"unique", lazy<unique>}};

}  // namespace

std::span<const Callable> sequence_filters() { return kSequenceFilters; }

}  // namespace baton::jinja
