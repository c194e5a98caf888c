// Expressions: names, attributes, items, slices, calls, comparisons.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "baton/text/jinja/runtime.h"
#include "baton/text/jinja/strings.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

tl::unexpected<Error> undefined_error(const Value& value) {
  if (value.text == nullptr) return bad("an undefined value is used");
  return bad(fmt::format("'{}' is undefined", value.view()));
}

Value undefined_named(Runtime& runtime, std::string_view name) { return Value::undefined(runtime.new_text(name).text); }

// Steps that reading a whole value may take.
uint64_t size_of(const Value& value) {
  switch (value.type) {
    case Type::kText:
      return value.text->size / 64;
    case Type::kList:
      return value.list->count / 8;
    case Type::kDict:
      return value.dict->count / 8;
    default:
      return 0;
  }
}

}  // namespace

Result<Value> Runtime::evaluate(const Node& node, Scope* scope) {
  BATON_OK(charge(1));
  if (++depth_ > limits_.call_depth_max) {
    --depth_;
    return bad(fmt::format("line {}: evaluation nested deeper than {} (endless recursion?)", node.line,
                           limits_.call_depth_max));
  }
  Result<Value> value = evaluate_kind(node, scope);
  --depth_;
  return value;
}

Result<Value> Runtime::evaluate_kind(const Node& node, Scope* scope) {
  switch (node.kind) {
    case Kind::kConstant:
      return node.constant;
    case Kind::kName:
      return look_up(node, scope);
    case Kind::kAttribute: {
      BATON_TRY(const Value of, evaluate(*node.children[0], scope));
      return attribute(of, node.text);
    }
    case Kind::kItem: {
      BATON_TRY(const Value of, evaluate(*node.children[0], scope));
      BATON_TRY(const Value key, evaluate(*node.children[1], scope));
      return item(of, key);
    }
    case Kind::kSlice:
      return evaluate_slice(node, scope);
    case Kind::kCall:
      return evaluate_call(node, scope, nullptr);
    case Kind::kFilter:
      return evaluate_filter(node, scope, nullptr);
    case Kind::kTest:
      return evaluate_test(node, scope);
    case Kind::kUnary:
      return evaluate_unary(node, scope);
    case Kind::kArithmetic: {
      BATON_TRY(Value value, evaluate(*node.children[0], scope));
      for (size_t i = 0; i < node.ops.size(); ++i) {
        BATON_TRY(const Value right, evaluate(*node.children[i + 1], scope));
        BATON_TRY(value, arithmetic(*this, node.ops[i], value, right));
      }
      return value;
    }
    case Kind::kConcat:
      return evaluate_concat(node, scope);
    case Kind::kCompare:
      return evaluate_compare(node, scope);
    case Kind::kAnd:
    case Kind::kOr: {
      Value value;
      for (const NodePtr& child : node.children) {
        BATON_TRY(value, evaluate(*child, scope));
        if (is_true(value) != (node.kind == Kind::kAnd)) break;
      }
      return value;
    }
    case Kind::kConditional: {
      BATON_TRY(const Value condition, evaluate(*node.children[0], scope));
      if (is_true(condition)) return evaluate(*node.children[1], scope);
      if (node.children[2]) return evaluate(*node.children[2], scope);
      return Value();
    }
    case Kind::kList:
    case Kind::kTuple: {
      std::vector<Value> items;
      for (const NodePtr& child : node.children) {
        BATON_TRY(const Value value, evaluate(*child, scope));
        items.push_back(value);
      }
      return new_list(items, node.kind == Kind::kList ? ListKind::kList : ListKind::kTuple);
    }
    case Kind::kDict:
      return evaluate_dict(node, scope);
    default:
      return fail(Code::kInternal, "a statement where an expression belongs");
  }
}

Result<Value> Runtime::evaluate_dict(const Node& node, Scope* scope) {
  std::vector<Dict::Entry> entries;
  for (size_t i = 0; i < node.children.size(); i += 2) {
    BATON_TRY(const Value key, evaluate(*node.children[i], scope));
    BATON_TRY(const Value value, evaluate(*node.children[i + 1], scope));
    if (!key.is_text() && !key.is_number() && !key.is_none()) {
      return bad(fmt::format("a {} cannot be a key", type_name(key)));
    }
    entries.push_back({key, value});
  }
  return make_dict(&heap_, entries);
}

Result<Value> Runtime::evaluate_unary(const Node& node, Scope* scope) {
  BATON_TRY(const Value value, evaluate(*node.children[0], scope));
  if (node.ops[0] == Op::kNot) return Value::of_bool(!is_true(value));
  if (value.is_undefined()) return undefined_error(value);
  if (!value.is_number()) return bad(fmt::format("a {} has no sign", type_name(value)));
  const bool negative = node.ops[0] == Op::kNegative;
  if (value.is(Type::kFloat)) return Value::of_float(negative ? -value.real : value.real);
  if (!negative) return Value::of_int(value.as_int());
  return arithmetic(*this, Op::kSubtract, Value::of_int(0), value);
}

// ---- Attributes and items.

Result<Value> Runtime::loop_attribute(const Loop& loop, std::string_view name) {
  const auto index0 = static_cast<int64_t>(loop.index0);
  const auto count = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::of_int(index0 + 1);
  if (name == "index0") return Value::of_int(index0);
  if (name == "revindex") return Value::of_int(count - index0);
  if (name == "revindex0") return Value::of_int(count - index0 - 1);
  if (name == "first") return Value::of_bool(index0 == 0);
  if (name == "last") return Value::of_bool(index0 + 1 == count);
  if (name == "length") return Value::of_int(count);
  if (name == "depth") return Value::of_int(static_cast<int64_t>(loop.depth0) + 1);
  if (name == "depth0") return Value::of_int(static_cast<int64_t>(loop.depth0));
  if (name == "previtem")
    return index0 == 0 ? undefined_named(*this, "there is no previous item") : loop.items[loop.index0 - 1];
  if (name == "nextitem") {
    return index0 + 1 == count ? undefined_named(*this, "there is no next item") : loop.items[loop.index0 + 1];
  }
  return undefined_named(*this, fmt::format("loop.{}", name));
}

Result<Value> Runtime::bound_method(const Value& of, std::string_view name) {
  const Callable* method = find_method(of.type, name);
  if (method == nullptr) {
    if (is_python_attribute(of.type, name)) {
      return fail(Code::kUnsupported,
                  fmt::format("'{}' of a {} is not supported in chat templates", name, type_name(of)));
    }
    return Value();
  }
  Function function;
  function.callable = method;
  function.bound = true;
  function.self = of;
  Value value = Value::of(Type::kFunction);
  value.function = heap_.make(function);
  return value;
}

Result<Value> Runtime::attribute(const Value& of, std::string_view name) {
  if (of.is_undefined()) return undefined_error(of);
  if (of.is(Type::kLoop)) {
    if (find_method(of.type, name) != nullptr) return bound_method(of, name);
    return loop_attribute(*of.loop, name);
  }
  if (of.is(Type::kNamespace)) {
    if (const Value* found = of.space->find(name)) return *found;
    return undefined_named(*this, name);
  }
  // As jinja2: Python's attributes first, then items.
  BATON_TRY(const Value method, bound_method(of, name));
  if (!method.is_undefined()) return method;
  if (of.is(Type::kDict)) {
    if (const Value* found = of.dict->find(name)) return *found;
  }
  return undefined_named(*this, name);
}

Result<Value> Runtime::item(const Value& of, const Value& key) {
  if (of.is_undefined()) return undefined_error(of);
  if (of.is(Type::kDict)) {
    if (const Value* found = of.dict->find(key)) return *found;
  }
  const bool is_sequence = of.is_text() || (of.is(Type::kList) && of.list->has_items());
  if (is_sequence && key.is_integral()) {
    BATON_OK(charge(size_of(of)));
    const auto count = static_cast<int64_t>(of.is_text() ? char_count(of.view()) : of.list->count);
    const int64_t index = key.as_int() < 0 ? key.as_int() + count : key.as_int();
    if (index < 0 || index >= count) return undefined_named(*this, "an index out of range");
    if (!of.is_text()) return of.list->items[index];
    const size_t at = char_offset(of.view(), static_cast<size_t>(index));
    return new_text(of.text->slice(at, decode_utf8(of.view(), at).length));
  }
  // A name as the key: jinja2 falls back to the attribute.
  if (key.is_text()) {
    if (of.is(Type::kLoop) || of.is(Type::kNamespace)) return attribute(of, key.view());
    BATON_TRY(const Value method, bound_method(of, key.view()));
    if (!method.is_undefined()) return method;
    return undefined_named(*this, key.view());
  }
  return undefined_named(*this, "an item that does not exist");
}

Result<Value> Runtime::evaluate_slice(const Node& node, Scope* scope) {
  BATON_TRY(const Value of, evaluate(*node.children[0], scope));
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!node.children[i + 1]) continue;
    BATON_TRY(const Value bound, evaluate(*node.children[i + 1], scope));
    if (bound.is_none()) continue;
    if (!bound.is_integral()) return bad(fmt::format("a slice bound is a {}: must be an integer", type_name(bound)));
    bounds[i] = bound.as_int();
  }
  if (of.is_undefined()) return undefined_error(of);
  const bool is_list = of.is(Type::kList) && of.list->has_items();
  if (!of.is_text() && !is_list) return bad(fmt::format("a {} cannot be sliced", type_name(of)));
  BATON_OK(charge(size_of(of)));

  const int64_t step = bounds[2].value_or(1);
  if (step == 0) return bad("the slice step is 0");
  const auto count = static_cast<int64_t>(of.is_text() ? char_count(of.view()) : of.list->count);
  const auto clamp = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
    return std::clamp(*bound < 0 ? (*bound < -count ? low : *bound + count) : *bound, low, high);
  };
  const int64_t start = clamp(bounds[0], step > 0 ? 0 : count - 1);
  const int64_t stop = clamp(bounds[1], step > 0 ? count : -1);
  std::vector<int64_t> indices;
  if (of.is_text() && step == 1) {
    if (start >= stop) return new_text("");
    const size_t begin = char_offset(of.view(), static_cast<size_t>(start));
    const size_t end = char_offset(of.view(), static_cast<size_t>(stop));
    return new_text(of.text->slice(begin, end - begin));
  }
  if (static_cast<uint64_t>(count) > limits_.items_max) return bad("a string is too long to take apart");
  // Steps past the other end stop at once; a huge step must not overflow.
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    indices.push_back(i);
    if (step > 0 ? step >= stop - i : step <= stop - i) break;
    i += step;
  }
  if (!of.is_text()) {
    std::vector<Value> items;
    items.reserve(indices.size());
    for (const int64_t i : indices) items.push_back(of.list->items[i]);
    return new_list(items, of.list->kind);
  }
  std::vector<size_t> offsets;
  offsets.reserve(static_cast<size_t>(count) + 1);
  for (size_t at = 0; at < of.text->size; at += decode_utf8(of.view(), at).length) offsets.push_back(at);
  offsets.push_back(of.text->size);
  TextBuilder builder = new_text();
  for (const int64_t i : indices) {
    const auto at = static_cast<size_t>(i);
    builder.append(of.text->slice(offsets[at], offsets[at + 1] - offsets[at]));
  }
  return finish(builder);
}

Result<std::span<const Value>> Runtime::iterate(const Value& value) {
  switch (value.type) {
    case Type::kUndefined:
      return std::span<const Value>();
    case Type::kList:
      if (value.list->failure != nullptr) return bad(std::string(value.list->failure->view()));
      return value.list->span();
    case Type::kText: {
      std::vector<Value> items;
      if (char_count(value.view()) > limits_.items_max) return bad("a string is too long to go through");
      for (size_t at = 0; at < value.text->size;) {
        const size_t length = decode_utf8(value.view(), at).length;
        items.push_back(new_text(value.text->slice(at, length)));
        at += length;
      }
      BATON_TRY(const Value list, new_list(items));
      return list.list->span();
    }
    case Type::kDict: {
      std::vector<Value> keys;
      keys.reserve(value.dict->count);
      for (const Dict::Entry& entry : value.dict->span()) keys.push_back(entry.key);
      BATON_TRY(const Value list, new_list(keys));
      return list.list->span();
    }
    default:
      return bad(fmt::format("a {} cannot be iterated", type_name(value)));
  }
}

Result<bool> Runtime::contains(const Value& container, const Value& value) {
  BATON_OK(charge(size_of(container) + 1));
  switch (container.type) {
    case Type::kUndefined:
      return false;
    case Type::kText:
      if (!value.is_text()) return bad(fmt::format("a {} cannot be in a string", type_name(value)));
      return container.view().find(value.view()) != std::string_view::npos;
    case Type::kDict:
      if (value.is(Type::kList) || value.is(Type::kDict)) {
        return bad(fmt::format("a {} cannot be a key", type_name(value)));
      }
      return container.dict->find(value) != nullptr;
    case Type::kList:
      if (container.list->failure != nullptr) return bad(std::string(container.list->failure->view()));
      for (const Value& one : container.list->span()) {
        BATON_OK(charge(size_of(one)));
        BATON_TRY(const bool same, equal(one, value));
        if (same) return true;
      }
      return false;
    default:
      return bad(fmt::format("a {} contains nothing", type_name(container)));
  }
}

// ---- Operators.

Result<Value> Runtime::evaluate_concat(const Node& node, Scope* scope) {
  std::vector<Text> texts;
  for (const NodePtr& child : node.children) {
    BATON_TRY(const Value value, evaluate(*child, scope));
    BATON_TRY(Text text, to_text(value));
    text.markup = false;  // unlike +, ~ makes plain strings
    texts.push_back(text);
  }
  return join_texts(*this, texts);
}

Result<Value> Runtime::evaluate_compare(const Node& node, Scope* scope) {
  BATON_TRY(Value left, evaluate(*node.children[0], scope));
  for (size_t i = 0; i < node.ops.size(); ++i) {
    BATON_TRY(const Value right, evaluate(*node.children[i + 1], scope));
    BATON_OK(charge(size_of(left) + size_of(right)));
    const Op op = node.ops[i];
    bool holds = false;
    if (op == Op::kIn || op == Op::kNotIn) {
      BATON_TRY(const bool in, contains(right, left));
      holds = in == (op == Op::kIn);
    } else if (op == Op::kEqual || op == Op::kNotEqual) {
      BATON_TRY(const bool same, equal(left, right));
      holds = same == (op == Op::kEqual);
    } else {
      if (left.is_undefined()) return undefined_error(left);
      if (right.is_undefined()) return undefined_error(right);
      BATON_TRY(const int order, compare(left, right));
      holds = op == Op::kLess        ? order < 0
              : op == Op::kLessEqual ? order <= 0
              : op == Op::kGreater   ? order > 0
                                     : order >= 0;
    }
    if (!holds) return Value::of_bool(false);
    left = right;
  }
  return Value::of_bool(true);
}

// ---- Calls.

Status Runtime::bind(const Arguments& arguments, size_t skip, std::initializer_list<std::string_view> names,
                     Value* out) {
  const size_t given = arguments.positional.size() - std::min(skip, arguments.positional.size());
  if (given > names.size()) return bad(fmt::format("at most {} arguments, {} given", names.size(), given));
  for (size_t i = 0; i < given; ++i) out[i] = arguments.positional[skip + i];
  for (const Arguments::Named& named : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), named.name);
    if (found == names.end()) return bad(fmt::format("there is no argument '{}'", named.name));
    const auto index = static_cast<size_t>(found - names.begin());
    if (index < given) return bad(fmt::format("two values for '{}'", named.name));
    out[index] = named.value;
  }
  return {};
}

Result<Value> Runtime::call(const Callable& callable, const Arguments& arguments) {
  uint64_t steps = 1;
  for (const Value& value : arguments.positional) steps += size_of(value);
  for (const Arguments::Named& named : arguments.named) steps += size_of(named.value);
  BATON_OK(charge(steps));
  Result<Value> value = callable.run(*this, arguments);
  if (!value && !value.error().message.starts_with("line ") && callable.name != "raise_exception") {
    return fail(std::move(value).error().in(callable.name));
  }
  return value;
}

Status Runtime::evaluate_arguments(const Node& node, Scope* scope, std::vector<Value>* positional,
                                   std::vector<Arguments::Named>* named) {
  for (size_t i = 1; i < node.children.size(); ++i) {
    BATON_TRY(const Value value, evaluate(*node.children[i], scope));
    positional->push_back(value);
  }
  for (const Keyword& keyword : node.keywords) {
    BATON_TRY(const Value value, evaluate(*keyword.value, scope));
    named->push_back({keyword.name, value});
  }
  return {};
}

Result<Value> Runtime::evaluate_call(const Node& node, Scope* scope, const Value* caller) {
  BATON_TRY(const Value of, evaluate(*node.children[0], scope));
  if (of.is_undefined()) return undefined_error(of);
  if (!of.is(Type::kFunction)) return bad(fmt::format("a {} cannot be called", type_name(of)));
  const Function& function = *of.function;
  std::vector<Value> positional;
  std::vector<Arguments::Named> named;
  if (function.bound) positional.push_back(function.self);
  BATON_OK(evaluate_arguments(node, scope, &positional, &named));
  if (function.callable != nullptr) {
    if (caller != nullptr) return bad(fmt::format("{}() takes no block", function.callable->name));
    return call(*function.callable, {positional, named});
  }
  return call_macro(function, {positional, named}, caller);
}

Result<Value> Runtime::evaluate_filter(const Node& node, Scope* scope, const Value* input) {
  if (node.callable == nullptr) return fail(Code::kUnsupported, fmt::format("there is no filter '{}'", node.text));
  std::vector<Value> positional(1);
  std::vector<Arguments::Named> named;
  if (!node.children[0]) {
    positional[0] = *input;
  } else if (input != nullptr) {
    // A chain of filters over a block: its innermost filter takes the block.
    BATON_TRY(positional[0], evaluate_filter(*node.children[0], scope, input));
  } else {
    BATON_TRY(positional[0], evaluate(*node.children[0], scope));
  }
  BATON_OK(evaluate_arguments(node, scope, &positional, &named));
  return call(*node.callable, {positional, named});
}

Result<Value> Runtime::evaluate_test(const Node& node, Scope* scope) {
  if (node.callable == nullptr) return fail(Code::kUnsupported, fmt::format("there is no test '{}'", node.text));
  std::vector<Value> positional(1);
  std::vector<Arguments::Named> named;
  BATON_TRY(positional[0], evaluate(*node.children[0], scope));
  BATON_OK(evaluate_arguments(node, scope, &positional, &named));
  return call(*node.callable, {positional, named});
}

}  // namespace baton::jinja
