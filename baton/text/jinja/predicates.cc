// Tests: what may stand after `is`.
#include <fmt/format.h>

#include <algorithm>

#include "baton/text/jinja/runtime.h"
#include "baton/text/jinja/strings.h"

namespace baton::jinja {
namespace {

using Args = const Arguments&;

Status no_arguments(Args arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) return bad("takes no arguments");
  return {};
}

// A test of the value alone.
template <bool (*kHolds)(const Value&)>
Result<Value> simple(Runtime&, Args arguments) {
  BATON_OK(no_arguments(arguments));
  return Value::of_bool(kHolds(subject(arguments)));
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Type::kBool); }
bool is_true_literal(const Value& v) { return v.is(Type::kBool) && v.boolean; }
bool is_false_literal(const Value& v) { return v.is(Type::kBool) && !v.boolean; }
bool is_integer(const Value& v) { return v.is(Type::kInt); }
bool is_float(const Value& v) { return v.is(Type::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_text(); }
bool is_mapping(const Value& v) { return v.is(Type::kDict); }
bool is_callable(const Value& v) { return v.is(Type::kFunction) || v.is(Type::kUndefined) || v.is(Type::kLoop); }
bool is_iterable(const Value& v) {
  return v.is_text() || v.is(Type::kList) || v.is(Type::kDict) || v.is_undefined() || v.is(Type::kLoop);
}
bool is_list_like(const Value& v) {
  if (v.is(Type::kList)) return v.list->has_items();
  return v.is_text() || v.is(Type::kDict) || v.is_undefined();
}
bool is_escaped(const Value& v) { return v.is_text() && v.text->markup; }

Result<int64_t> integer(const Value& value) {
  if (!value.is_integral()) return bad(fmt::format("needs an integer, not a {}", type_name(value)));
  return value.as_int();
}

Result<Value> odd(Runtime&, Args arguments) {
  BATON_OK(no_arguments(arguments));
  BATON_TRY(const int64_t number, integer(subject(arguments)));
  return Value::of_bool(number % 2 != 0);
}

Result<Value> even(Runtime&, Args arguments) {
  BATON_OK(no_arguments(arguments));
  BATON_TRY(const int64_t number, integer(subject(arguments)));
  return Value::of_bool(number % 2 == 0);
}

Result<Value> divisibleby(Runtime& runtime, Args arguments) {
  Value by;
  BATON_OK(runtime.bind(arguments, 1, {"num"}, &by));
  BATON_TRY(const int64_t number, integer(subject(arguments)));
  BATON_TRY(const int64_t divisor, integer(by));
  if (divisor == 0) return bad("division by zero");
  return Value::of_bool(divisor == -1 || number % divisor == 0);
}

Result<Value> cased(Runtime& runtime, Args arguments, CharClass what) {
  BATON_OK(no_arguments(arguments));
  BATON_TRY(const Text text, runtime.to_text(subject(arguments)));
  return Value::of_bool(is_all(text.view(), what));
}
Result<Value> lower(Runtime& runtime, Args arguments) { return cased(runtime, arguments, CharClass::kLower); }
Result<Value> upper(Runtime& runtime, Args arguments) { return cased(runtime, arguments, CharClass::kUpper); }

Result<Value> other(Runtime& runtime, Args arguments) {
  if (arguments.positional.size() + arguments.named.size() != 2) return bad("takes one argument");
  Value value;
  BATON_OK(runtime.bind(arguments, 1, {"other"}, &value));
  return value;
}

Result<Value> eq(Runtime& runtime, Args arguments) {
  BATON_TRY(const Value value, other(runtime, arguments));
  BATON_TRY(const bool same, equal(subject(arguments), value));
  return Value::of_bool(same);
}
Result<Value> ne(Runtime& runtime, Args arguments) {
  BATON_TRY(const Value same, eq(runtime, arguments));
  return Value::of_bool(!same.boolean);
}

Result<int> order(Runtime& runtime, Args arguments) {
  BATON_TRY(const Value value, other(runtime, arguments));
  return compare(subject(arguments), value);
}
Result<Value> lt(Runtime& runtime, Args arguments) {
  BATON_TRY(const int result, order(runtime, arguments));
  return Value::of_bool(result < 0);
}
Result<Value> le(Runtime& runtime, Args arguments) {
  BATON_TRY(const int result, order(runtime, arguments));
  return Value::of_bool(result <= 0);
}
Result<Value> gt(Runtime& runtime, Args arguments) {
  BATON_TRY(const int result, order(runtime, arguments));
  return Value::of_bool(result > 0);
}
Result<Value> ge(Runtime& runtime, Args arguments) {
  BATON_TRY(const int result, order(runtime, arguments));
  return Value::of_bool(result >= 0);
}

Result<Value> in(Runtime& runtime, Args arguments) {
  BATON_TRY(const Value container, other(runtime, arguments));
  BATON_TRY(const bool found, runtime.contains(container, subject(arguments)));
  return Value::of_bool(found);
}

// Identity is only sure for values that Python has once.
Result<Value> sameas(Runtime& runtime, Args arguments) {
  BATON_TRY(const Value value, other(runtime, arguments));
  const Value& a = subject(arguments);
  if (a.type != value.type) return Value::of_bool(false);
  if (a.is_none()) return Value::of_bool(true);
  if (a.is(Type::kBool)) return Value::of_bool(a.boolean == value.boolean);
  return fail(Code::kUnsupported, fmt::format("two values of type {} cannot be compared by identity", type_name(a)));
}

Result<Value> filter_exists(Runtime&, Args arguments) {
  BATON_OK(no_arguments(arguments));
  return Value::of_bool(subject(arguments).is_text() && find_filter(subject(arguments).view()) != nullptr);
}
Result<Value> test_exists(Runtime&, Args arguments) {
  BATON_OK(no_arguments(arguments));
  return Value::of_bool(subject(arguments).is_text() && find_test(subject(arguments).view()) != nullptr);
}

constexpr Callable kTests[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true_literal>},
    {"false", simple<is_false_literal>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"number", simple<is_number>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"callable", simple<is_callable>},
    {"iterable", simple<is_iterable>},
    {"sequence", simple<is_list_like>},
    {"escaped", simple<is_escaped>},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisibleby},
    {"lower", lower},
    {"upper", upper},
    {"sameas", sameas},
    {"in", in},
    {"filter", filter_exists},
    {"test", test_exists},
    {"==", eq},
    {"eq", eq},
    {"equalto", eq},
    {"!=", ne},
    {"ne", ne},
    {"<", lt},
    {"lt", lt},
    {"lessthan", lt},
    {"<=", le},
    {"le", le},
    {">", gt},
    {"gt", gt},
    {"greaterthan", gt},
    {">=", ge},
    {"ge", ge},
};

}  // namespace

const Callable* find_test(std::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests),
                                  [&](const Callable& callable) { return callable.name == name; });
  return found == std::end(kTests) ? nullptr : &*found;
}

}  // namespace baton::jinja
