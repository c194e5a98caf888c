// Numbers within bounds, digit by digit.
#include <fmt/format.h>

#include <algorithm>

#include "baton/grammar/regex.h"
#include "baton/grammar/schema_compiler.h"

namespace baton::grammar {
namespace {

constexpr uint32_t kNumberStatesMax = 20'000;
constexpr size_t kDigitsMax = 36;  // before the point, of a bound
constexpr int64_t kMultipleMax = 4096;

// A number as it is written: digits before and behind the point, without zeros that mean nothing (0: no digits).
struct Decimal {
  bool negative = false;
  std::string whole, fraction;
  bool zero() const { return whole.empty() && fraction.empty(); }
};

// Nothing: too many digits.
std::optional<Decimal> decimal_of(const Json& number) {
  std::string text = number.dump();
  Decimal out;
  if (text.starts_with('-')) out.negative = true, text.erase(0, 1);
  int exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string::npos) {
    bool down = false;
    for (const char c : std::string_view(text).substr(e + 1)) {
      if (c == '-') down = true;
      if (c >= '0' && c <= '9') exponent = std::min(exponent * 10 + (c - '0'), 1000);
    }
    if (down) exponent = -exponent;
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  if (point < text.size()) digits += text.substr(point + 1);
  int64_t places = static_cast<int64_t>(point) + exponent;  // digits before the point
  if (places < -60 || places > 60) return std::nullopt;
  for (; places < 0; ++places) digits.insert(0, "0");
  while (places > static_cast<int64_t>(digits.size())) digits += '0';
  out.whole = digits.substr(0, static_cast<size_t>(places));
  out.fraction = digits.substr(static_cast<size_t>(places));
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  while (out.fraction.ends_with('0')) out.fraction.pop_back();
  if (out.zero()) out.negative = false;
  if (out.whole.size() > kDigitsMax || out.fraction.size() > kDigitsMax) return std::nullopt;
  return out;
}

// Expressions of numbers without sign, compared with a bound.
class Digits {
 public:
  explicit Digits(RegexPool* pool) : pool_(*pool) {}

  RegexId any() { return pool_.cat({whole(0, kUnbounded), fraction()}); }
  // At least `bound`, or above it.
  RegexId from(const Decimal& bound, bool strict) {
    std::vector<RegexId> ways = {pool_.cat({greater(bound.whole), fraction()})};
    const RegexId same = exactly(bound.whole);
    if (bound.fraction.empty() && !strict) {
      ways.push_back(pool_.cat({same, fraction()}));
    } else {
      ways.push_back(pool_.cat({same, pool_.text("."), fraction_from(bound.fraction, strict)}));
    }
    return pool_.alt(std::move(ways));
  }
  // At most `bound`, or below it.
  RegexId to(const Decimal& bound, bool strict) {
    std::vector<RegexId> ways = {pool_.cat({less(bound.whole), fraction()})};
    const RegexId same = exactly(bound.whole);
    if (!bound.fraction.empty() || !strict) {
      ways.push_back(same);
      ways.push_back(pool_.cat({same, pool_.text("."), fraction_to(bound.fraction, strict)}));
    }
    return pool_.alt(std::move(ways));
  }

 private:
  RegexId digit(char low, char high) {
    return low > high ? pool_.alt({}) : pool_.range(static_cast<uint8_t>(low), static_cast<uint8_t>(high));
  }
  RegexId run(uint32_t min, uint32_t max) { return pool_.repeat(digit('0', '9'), min, max); }
  RegexId fraction() { return pool_.optional(pool_.cat({pool_.text("."), run(1, kUnbounded)})); }
  // Whole numbers with so many digits; 0 has none.
  RegexId whole(uint32_t min, uint32_t max) {
    std::vector<RegexId> ways;
    if (min == 0) ways.push_back(pool_.text("0"));
    min = std::max(min, 1u);
    if (max >= min) ways.push_back(pool_.cat({digit('1', '9'), run(min - 1, max == kUnbounded ? max : max - 1)}));
    return pool_.alt(std::move(ways));
  }
  RegexId exactly(const std::string& digits) { return pool_.text(digits.empty() ? "0" : digits); }
  RegexId greater(const std::string& digits) {
    const uint32_t count = static_cast<uint32_t>(digits.size());
    std::vector<RegexId> ways = {whole(count + 1, kUnbounded)};
    for (uint32_t i = 0; i < count; ++i) {
      ways.push_back(pool_.cat({pool_.text(digits.substr(0, i)), digit(static_cast<char>(digits[i] + 1), '9'),
                                run(count - i - 1, count - i - 1)}));
    }
    return pool_.alt(std::move(ways));
  }
  RegexId less(const std::string& digits) {
    const uint32_t count = static_cast<uint32_t>(digits.size());
    std::vector<RegexId> ways;
    if (count > 0) ways.push_back(whole(0, count - 1));
    for (uint32_t i = 0; i < count; ++i) {
      const char low = i == 0 ? '1' : '0';
      ways.push_back(pool_.cat({pool_.text(digits.substr(0, i)), digit(low, static_cast<char>(digits[i] - 1)),
                                run(count - i - 1, count - i - 1)}));
    }
    return pool_.alt(std::move(ways));
  }
  RegexId fraction_from(const std::string& digits, bool strict) {
    std::vector<RegexId> ways;
    const auto zeros = pool_.repeat(digit('0', '0'), 0, kUnbounded);
    for (uint32_t i = 0; i < digits.size(); ++i) {
      ways.push_back(pool_.cat(
          {pool_.text(digits.substr(0, i)), digit(static_cast<char>(digits[i] + 1), '9'), run(0, kUnbounded)}));
    }
    const RegexId same = pool_.text(digits);
    if (strict) {
      ways.push_back(pool_.cat({same, zeros, digit('1', '9'), run(0, kUnbounded)}));
    } else {
      ways.push_back(pool_.cat({same, run(digits.empty() ? 1 : 0, kUnbounded)}));
    }
    return pool_.alt(std::move(ways));
  }
  RegexId fraction_to(const std::string& digits, bool strict) {
    std::vector<RegexId> ways;
    for (uint32_t i = 0; i < digits.size(); ++i) {
      const RegexId before = pool_.text(digits.substr(0, i));
      ways.push_back(pool_.cat({before, digit('0', static_cast<char>(digits[i] - 1)), run(0, kUnbounded)}));
      if (i > 0) ways.push_back(before);
    }
    if (!strict)
      ways.push_back(
          pool_.cat({pool_.text(digits), pool_.repeat(digit('0', '0'), digits.empty() ? 1 : 0, kUnbounded)}));
    return pool_.alt(std::move(ways));
  }

  RegexPool& pool_;
};

RegexId at_least(const Decimal& bound, bool strict, RegexPool* pool) {
  Digits digits(pool);
  if (!bound.negative) return digits.from(bound, strict);
  return pool->alt({digits.any(), pool->cat({pool->text("-"), digits.to(bound, strict)})});
}

RegexId at_most(const Decimal& bound, bool strict, RegexPool* pool) {
  Digits digits(pool);
  const RegexId minus = pool->text("-");
  if (bound.negative) return pool->cat({minus, digits.from(bound, strict)});
  const RegexId below_zero = pool->cat({minus, digits.from(Decimal{}, true)});
  return pool->alt({below_zero, digits.to(bound, strict)});
}

// Whole numbers that `m` divides, by their remainders.
ByteDfa multiples(int64_t m) {
  ByteDfa dfa;
  dfa.class_of.fill(11);
  for (uint8_t d = 0; d < 10; ++d) dfa.class_of[static_cast<size_t>('0') + d] = d;
  dfa.class_of['-'] = 10;
  dfa.classes = 12;
  // The start, behind a minus, then the remainders.
  for (int64_t s = -2; s < m; ++s) {
    for (int64_t d = 0; d < 10; ++d)
      dfa.next.push_back(static_cast<uint32_t>(2 + (std::max<int64_t>(s, 0) * 10 + d) % m));
    dfa.next.push_back(s == -2 ? 1 : kDead);
    dfa.next.push_back(kDead);
    dfa.accepting.push_back(s == 0);
  }
  return dfa;
}

struct Bounds {
  Draft* draft;
  const std::string& path;
  std::optional<ByteDfa> dfa = {};

  Status narrow(const ByteDfa& other, const char* name) {
    auto both = product(*dfa, other, Product::kBoth, kNumberStatesMax, &draft->budget());
    if (!both) return schema_error(Code::kUnsupported, path + "/" + name, both.error().message);
    dfa = *std::move(both);
    return {};
  }
  Result<ByteDfa> compiled(RegexId id, const char* name) {
    auto made = determinise(draft->regex(), id, kNumberStatesMax, &draft->budget());
    if (!made) return schema_error(Code::kUnsupported, path + "/" + name, made.error().message);
    return *std::move(made);
  }
  Status bound(const Json& schema, const char* name, bool lower, bool strict) {
    if (!schema.contains(name)) return {};
    const auto decimal = decimal_of(schema[name]);
    if (!decimal) return schema_error(Code::kUnsupported, path + "/" + name, "a bound of too many digits");
    RegexPool& pool = draft->regex();
    BATON_TRY(const ByteDfa other,
              compiled(lower ? at_least(*decimal, strict, &pool) : at_most(*decimal, strict, &pool), name));
    return narrow(other, name);
  }
};

// Of 0.01 its 2; nothing for what is no power of ten.
std::optional<uint32_t> places_of(const Json& multiple) {
  const auto decimal = decimal_of(multiple);
  if (!decimal || !decimal->whole.empty() || !decimal->fraction.ends_with('1')) return std::nullopt;
  const size_t places = decimal->fraction.size();
  return decimal->fraction.find_first_not_of('0') == places - 1 ? std::optional(static_cast<uint32_t>(places))
                                                                : std::nullopt;
}

}  // namespace

Result<ExprId> number_value(const Json& schema, bool integer, const std::string& path, Draft* draft,
                            JsonPieces* pieces) {
  constexpr const char* kBounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
  if (std::ranges::none_of(kBounds, [&](const char* name) { return schema.contains(name); })) {
    return integer ? pieces->integer() : pieces->number();
  }
  for (const char* name : kBounds) {
    if (!integer || !schema.contains(name) || !digits_are_lost(schema[name])) continue;
    return schema_error(Code::kUnsupported, path + "/" + name, "beyond 64 bits: its digits are not kept");
  }
  // Bounds of more digits than numbers have otherwise: as many.
  size_t digits = 18;
  for (const char* name : kBounds) {
    if (!schema.contains(name)) continue;
    if (const auto decimal = decimal_of(schema[name])) digits = std::max(digits, decimal->whole.size());
  }
  std::string plain = fmt::format("-?(0|[1-9][0-9]{{0,{}}})", digits - 1);
  if (!integer) plain += "(\\.[0-9]{1,16})?";
  const Json multiple = schema.value("multipleOf", Json());
  if (!multiple.is_null() && !(multiple > 0)) {
    return schema_error(Code::kInvalidInput, path + "/multipleOf", "must be above 0");
  }
  const bool whole = multiple.is_number() && multiple == std::floor(multiple.get<double>());
  if (multiple.is_number() && !whole) {
    const auto places = places_of(multiple);
    if (!places || *places > 16) {
      return schema_error(Code::kUnsupported, path + "/multipleOf", "only whole numbers, 0.1, 0.01 and so on");
    }
    if (!integer) plain = fmt::format("-?(0|[1-9][0-9]{{0,{}}})(\\.[0-9]{{1,{}}})?", digits - 1, *places);
  }
  if (whole && multiple > kMultipleMax) {
    return schema_error(Code::kUnsupported, path + "/multipleOf", fmt::format("at most {}", kMultipleMax));
  }
  Bounds all{draft, path};
  BATON_TRY(const RegexId form, parse_regex(plain, Spelling::kText, RegexReach::kWhole, &draft->regex()));
  BATON_TRY(all.dfa, all.compiled(form, "type"));
  BATON_OK(all.bound(schema, "minimum", true, false));
  BATON_OK(all.bound(schema, "exclusiveMinimum", true, true));
  BATON_OK(all.bound(schema, "maximum", false, false));
  BATON_OK(all.bound(schema, "exclusiveMaximum", false, true));
  if (whole) BATON_OK(all.narrow(multiples(multiple.get<int64_t>()), "multipleOf"));
  return draft->terminal(*std::move(all.dfa));
}

}  // namespace baton::grammar
