// Arithmetic as Python has it (floor division, true division, text repetition), joining texts, and % formatting.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "baton/text/jinja/runtime.h"
#include "baton/text/jinja/strings.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

std::string_view sign_of(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSubtract:
      return "-";
    case Op::kMultiply:
      return "*";
    case Op::kDivide:
      return "/";
    case Op::kFloorDivide:
      return "//";
    case Op::kModulo:
      return "%";
    default:
      return "**";
  }
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return bad("0 to a negative power");
    return Value::of_float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return bad("an integer above 64 bits");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return bad("an integer above 64 bits");
  }
  return Value::of_int(result);
}

Result<Value> integer_arithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Op::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Op::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::kDivide:
      if (b == 0) return bad("division by zero");
      return Value::of_float(static_cast<double>(a) / static_cast<double>(b));
    case Op::kFloorDivide:
    case Op::kModulo: {
      if (b == 0) return bad("division by zero");
      if (b == -1) return integer_arithmetic(op == Op::kModulo ? Op::kMultiply : Op::kSubtract, 0, a);
      const int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      return Value::of_int(op == Op::kModulo ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0));
    }
    default:
      return integer_power(a, b);
  }
  if (overflow) return bad("an integer above 64 bits");
  return Value::of_int(result);
}

Result<Value> float_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::of_float(a + b);
    case Op::kSubtract:
      return Value::of_float(a - b);
    case Op::kMultiply:
      return Value::of_float(a * b);
    case Op::kPower: {
      if (a == 0.0 && b < 0.0) return bad("0 to a negative power");
      const double power = std::pow(a, b);
      if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) return bad("the power is a complex number");
      return Value::of_float(power);
    }
    default:
      break;
  }
  if (b == 0.0) return bad("division by zero");
  if (op == Op::kDivide) return Value::of_float(a / b);
  // Python's float floor division and modulo: the remainder has the sign of the divisor.
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0.0 && (b < 0.0) != (remainder < 0.0)) {
    remainder += b;
    quotient -= 1.0;
  }
  if (op == Op::kModulo) return Value::of_float(remainder == 0.0 ? std::copysign(0.0, b) : remainder);
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1.0;
  return Value::of_float(quotient == 0.0 ? std::copysign(0.0, a / b) : floored);
}

Result<Value> repeat(Runtime& runtime, const Value& of, int64_t count) {
  if (count < 0) count = 0;
  if (of.is_text()) {
    TextBuilder builder = runtime.new_text();
    if (of.text->size > 0) {
      for (int64_t i = 0; i < count && !builder.overflowed(); ++i) builder.append(*of.text);
    }
    return runtime.finish(builder);
  }
  const List& list = *of.list;
  if (list.count > 0 && static_cast<uint64_t>(count) > runtime.limits().items_max / list.count) {
    return bad(fmt::format("a list of more than {} items", runtime.limits().items_max));
  }
  std::vector<Value> items;
  if (list.count == 0) count = 0;
  for (int64_t i = 0; i < count; ++i) items.insert(items.end(), list.items, list.items + list.count);
  return runtime.new_list(items, list.kind);
}

bool is_sequence(const Value& value) {
  return value.is(Type::kList) && (value.list->kind == ListKind::kList || value.list->kind == ListKind::kTuple);
}

}  // namespace

Result<Value> arithmetic(Runtime& runtime, Op op, const Value& a, const Value& b) {
  for (const Value& value : {a, b}) {
    if (!value.is_undefined()) continue;
    return bad(value.text == nullptr ? "an undefined value is used" : fmt::format("'{}' is undefined", value.view()));
  }
  if (op == Op::kModulo && a.is_text()) {
    const bool is_tuple = b.is(Type::kList) && b.list->kind == ListKind::kTuple;
    return format_percent(runtime, *a.text, is_tuple ? b.list->span() : std::span(&b, 1));
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.as_int(), b.as_int());
    return float_arithmetic(op, a.as_float(), b.as_float());
  }
  if (op == Op::kAdd && a.is_text() && b.is_text()) {
    const Text both[] = {*a.text, *b.text};
    return join_texts(runtime, both);
  }
  if (op == Op::kAdd && is_sequence(a) && is_sequence(b) && a.list->kind == b.list->kind) {
    std::vector<Value> items(a.list->items, a.list->items + a.list->count);
    items.insert(items.end(), b.list->items, b.list->items + b.list->count);
    return runtime.new_list(items, a.list->kind);
  }
  if (op == Op::kMultiply) {
    if ((a.is_text() || is_sequence(a)) && b.is_integral()) return repeat(runtime, a, b.as_int());
    if ((b.is_text() || is_sequence(b)) && a.is_integral()) return repeat(runtime, b, a.as_int());
  }
  return bad(fmt::format("{} {} {} is not possible", type_name(a), sign_of(op), type_name(b)));
}

Result<Value> join_texts(Runtime& runtime, std::span<const Text> texts) {
  bool markup = false;
  for (const Text& text : texts) markup = markup || text.markup;
  TextBuilder builder = runtime.new_text();
  for (const Text& text : texts) {
    if (markup && !text.markup) {
      append_escaped(text, &builder);
    } else {
      builder.append(text);
    }
  }
  return runtime.finish(builder, markup);
}

namespace {

struct Spec {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  int64_t width = 0, precision = -1;
  char conversion = 's';
};

// The digits of a number for %d, %x, %o, %f, %e, %g; without the sign.
Result<std::string> number_digits(const Spec& spec, const Value& value, bool* negative) {
  char buffer[512];
  if (spec.conversion == 'f' || spec.conversion == 'e' || spec.conversion == 'g') {
    const double number = value.as_float();
    *negative = std::signbit(number);
    if (!std::isfinite(number)) return std::string(std::isnan(number) ? "nan" : "inf");
    const auto format = spec.conversion == 'f'   ? std::chars_format::fixed
                        : spec.conversion == 'e' ? std::chars_format::scientific
                                                 : std::chars_format::general;
    const auto made = std::to_chars(buffer, buffer + sizeof buffer, std::fabs(number), format,
                                    static_cast<int>(spec.precision < 0 ? 6 : spec.precision));
    if (made.ec != std::errc()) return bad("a number is too long to format");
    return std::string(buffer, made.ptr);
  }
  int64_t integer = 0;
  if (value.is(Type::kFloat)) {
    if (spec.conversion != 'd' && spec.conversion != 'i' && spec.conversion != 'u')
      return bad("%x and %o need an integer");
    if (!(std::fabs(value.real) < 9e18)) return bad("a number is too large for %d");
    integer = static_cast<int64_t>(value.real);
  } else {
    integer = value.as_int();
  }
  *negative = integer < 0;
  const uint64_t magnitude = integer < 0 ? 0 - static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
  const int base = spec.conversion == 'x' || spec.conversion == 'X' ? 16 : spec.conversion == 'o' ? 8 : 10;
  const auto made = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base);
  std::string digits(buffer, made.ptr);
  if (spec.conversion == 'X') {
    for (char& c : digits) c = static_cast<char>(c >= 'a' ? c - 32 : c);
  }
  if (static_cast<int64_t>(digits.size()) < spec.precision) {
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  return digits;
}

Status append_formatted(const Spec& spec, Runtime& runtime, const Value& value, TextBuilder* out) {
  TextBuilder made = runtime.new_text();
  std::string prefix;
  const bool is_text = spec.conversion == 's' || spec.conversion == 'r';
  if (is_text) {
    BATON_OK(spec.conversion == 's' ? append_str(value, &made) : append_repr(value, &made));
  } else {
    if (!value.is_number()) return bad(fmt::format("%{} needs a number, not a {}", spec.conversion, type_name(value)));
    bool negative = false;
    BATON_TRY(const std::string digits, number_digits(spec, value, &negative));
    prefix = negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
    made.append_literal(digits);
  }
  BATON_TRY(const Value finished, runtime.finish(made));
  Text text = *finished.text;
  if (is_text && spec.precision >= 0)
    text = text.slice(0, char_offset(text.view(), static_cast<size_t>(spec.precision)));
  const auto length = static_cast<int64_t>(char_count(text.view()) + prefix.size());
  const std::string padding(static_cast<size_t>(std::max<int64_t>(0, spec.width - length)),
                            spec.zero && !spec.left && !is_text ? '0' : ' ');
  if (spec.left) {
    out->append_literal(prefix);
    out->append(text);
    out->append_literal(padding);
  } else if (!padding.empty() && padding[0] == '0') {
    out->append_literal(prefix);
    out->append_literal(padding);
    out->append(text);
  } else {
    out->append_literal(padding);
    out->append_literal(prefix);
    out->append(text);
  }
  return {};
}

// The part after %: flags, width, precision, conversion. Moves *at behind it.
Result<Spec> parse_spec(std::string_view format, size_t* at) {
  Spec spec;
  const auto more = [&] { return *at < format.size(); };
  for (; more(); ++*at) {
    const char c = format[*at];
    if (c == '-')
      spec.left = true;
    else if (c == '0')
      spec.zero = true;
    else if (c == '+')
      spec.plus = true;
    else if (c == ' ')
      spec.space = true;
    else
      break;
  }
  const auto number = [&](int64_t* value) {
    for (*value = 0; more() && format[*at] >= '0' && format[*at] <= '9'; ++*at) {
      *value = std::min<int64_t>(*value * 10 + (format[*at] - '0'), 1'000'000);
    }
  };
  number(&spec.width);
  if (more() && format[*at] == '.') {
    ++*at;
    number(&spec.precision);
  }
  if (!more()) return bad("the format ends within a conversion");
  spec.conversion = format[(*at)++];
  if (std::string_view("sdiuxXofegr%").find(spec.conversion) == std::string_view::npos) {
    return fail(Code::kUnsupported, fmt::format("the conversion %{} is not supported", spec.conversion));
  }
  if (spec.width > 10000 || spec.precision > 300) return bad("a width or precision in a format is too large");
  return spec;
}

}  // namespace

Result<Value> format_percent(Runtime& runtime, const Text& format, std::span<const Value> values) {
  TextBuilder out = runtime.new_text();
  const std::string_view bytes = format.view();
  size_t used = 0;
  for (size_t at = 0; at < bytes.size() && !out.overflowed();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.append(format.slice(at, percent - at));
    if (percent == bytes.size()) break;
    at = percent + 1;
    if (at < bytes.size() && bytes[at] == '(') {
      return fail(Code::kUnsupported, "% formats with names are not supported");
    }
    BATON_TRY(const Spec spec, parse_spec(bytes, &at));
    if (spec.conversion == '%') {
      out.append_literal("%");
      continue;
    }
    if (used >= values.size()) return bad("not enough values for the format");
    BATON_OK(append_formatted(spec, runtime, values[used++], &out));
  }
  // A dictionary or list as the only value may be left over: Python lets a mapping pass.
  const bool lone_mapping = values.size() == 1 && values[0].is(Type::kDict);
  if (used < values.size() && !lone_mapping) return bad("more values than the format uses");
  return runtime.finish(out);
}

}  // namespace baton::jinja
