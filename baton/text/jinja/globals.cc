// Global functions: raise_exception, strftime_now, namespace, range, dict.
#include <fmt/format.h>

#include <algorithm>

#include "baton/text/jinja/runtime.h"

namespace baton::jinja {
namespace {

Result<Value> raise_exception(Runtime& runtime, const Arguments& arguments) {
  Value message;
  BATON_OK(runtime.bind(arguments, 0, {"message"}, &message));
  BATON_TRY(const Text text, runtime.to_text(message));
  return bad(fmt::format("the template refuses these messages: {}", text.view()));
}

struct Date {
  int64_t year;
  int month, day, weekday, yearday;  // month and day from 1; weekday from Sunday = 0; yearday from 1
  int hour, minute, second;
};

bool is_leap(int64_t year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

Date to_date(int64_t seconds) {
  int64_t days = seconds / 86400;
  int64_t rest = seconds % 86400;
  if (rest < 0) rest += 86400, --days;
  Date date{};
  date.hour = static_cast<int>(rest / 3600);
  date.minute = static_cast<int>(rest / 60 % 60);
  date.second = static_cast<int>(rest % 60);
  date.weekday = static_cast<int>(((days + 4) % 7 + 7) % 7);
  // Days to civil date: H. Hinnant, chrono-compatible low-level date algorithms.
  const int64_t z = days + 719468;
  const int64_t era = (z >= 0 ? z : z - 146096) / 146097;
  const int64_t day_of_era = z - era * 146097;
  const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month_shifted = (5 * day_of_year + 2) / 153;
  date.day = static_cast<int>(day_of_year - (153 * month_shifted + 2) / 5 + 1);
  date.month = static_cast<int>(month_shifted < 10 ? month_shifted + 3 : month_shifted - 9);
  date.year = year_of_era + era * 400 + (date.month <= 2 ? 1 : 0);
  constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  date.yearday = kBefore[date.month - 1] + date.day + (date.month > 2 && is_leap(date.year) ? 1 : 0);
  return date;
}

constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};
constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

// The C locale's strftime.
Result<std::string> format_date(std::string_view format, const Date& date) {
  std::string out;
  const auto month = kMonths[date.month - 1];
  const auto day = kDays[date.weekday];
  const int hour12 = date.hour % 12 == 0 ? 12 : date.hour % 12;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    if (++i >= format.size()) return bad("the date format ends with '%'");
    const bool unpadded = format[i] == '-';
    if (unpadded && ++i >= format.size()) return bad("the date format ends with '%-'");
    const auto number = [&](int64_t value, int width) {
      out += unpadded ? fmt::format("{}", value) : fmt::format("{:0{}}", value, width);
    };
    switch (format[i]) {
      case 'Y':
        out += fmt::format("{}", date.year);
        break;
      case 'y':
        number(date.year % 100, 2);
        break;
      case 'm':
        number(date.month, 2);
        break;
      case 'd':
        number(date.day, 2);
        break;
      case 'e':
        out += fmt::format("{:{}}", date.day, unpadded ? 1 : 2);
        break;
      case 'H':
        number(date.hour, 2);
        break;
      case 'I':
        number(hour12, 2);
        break;
      case 'M':
        number(date.minute, 2);
        break;
      case 'S':
        number(date.second, 2);
        break;
      case 'j':
        number(date.yearday, 3);
        break;
      case 'B':
        out += month;
        break;
      case 'b':
        out += month.substr(0, 3);
        break;
      case 'A':
        out += day;
        break;
      case 'a':
        out += day.substr(0, 3);
        break;
      case 'p':
        out += date.hour < 12 ? "AM" : "PM";
        break;
      case 'w':
        number(date.weekday, 1);
        break;
      case 'u':
        number(date.weekday == 0 ? 7 : date.weekday, 1);
        break;
      case 'F':
        out += fmt::format("{}-{:02}-{:02}", date.year, date.month, date.day);
        break;
      case 'T':
        out += fmt::format("{:02}:{:02}:{:02}", date.hour, date.minute, date.second);
        break;
      case '%':
        out.push_back('%');
        break;
      default:
        return fail(Code::kUnsupported, fmt::format("the date format %{} is not supported", format[i]));
    }
  }
  return out;
}

Result<Value> strftime_now(Runtime& runtime, const Arguments& arguments) {
  Value format;
  BATON_OK(runtime.bind(arguments, 0, {"format"}, &format));
  if (!format.is_text()) return bad("the format must be a string");
  // Years 0 to 9999, as Python's datetime.
  const int64_t seconds = std::clamp<int64_t>(*runtime.local_seconds, -62135596800, 253402300799);
  BATON_TRY(const std::string text, format_date(format.view(), to_date(seconds)));
  return runtime.new_text(text);
}

constexpr size_t kNamespaceMax = 1000;

// dict(mapping or pairs, a=1, ...): the entries.
Result<std::vector<Dict::Entry>> dict_entries(Runtime& runtime, const Arguments& arguments) {
  std::vector<Dict::Entry> entries;
  if (arguments.positional.size() > 1) return bad("at most one positional argument");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is(Type::kDict)) {
      entries.assign(from.dict->span().begin(), from.dict->span().end());
    } else {
      BATON_TRY(const auto pairs, runtime.iterate(from));
      for (const Value& pair : pairs) {
        BATON_TRY(const auto parts, runtime.iterate(pair));
        if (parts.size() != 2) return bad("an item is not a pair");
        if (!parts[0].is_text() && !parts[0].is_number() && !parts[0].is_none())
          return bad("an item has no usable key");
        entries.push_back({parts[0], parts[1]});
      }
    }
  }
  for (const Arguments::Named& named : arguments.named) {
    entries.push_back({runtime.new_text(named.name), named.value});
  }
  return entries;
}

Result<Value> make_namespace(Runtime& runtime, const Arguments& arguments) {
  BATON_TRY(const auto entries, dict_entries(runtime, arguments));
  if (entries.size() > kNamespaceMax) return bad(fmt::format("more than {} attributes", kNamespaceMax));
  auto* space = runtime.heap()->make(Namespace{});
  for (const Dict::Entry& entry : entries) {
    if (!entry.key.is_text()) return bad("an attribute name is not a string");
    space->set(runtime.heap(), entry.key.view(), entry.value);
  }
  Value value = Value::of(Type::kNamespace);
  value.space = space;
  return value;
}

Result<Value> dict(Runtime& runtime, const Arguments& arguments) {
  BATON_TRY(const auto entries, dict_entries(runtime, arguments));
  return make_dict(runtime.heap(), entries);
}

// jinja2's sandbox allows 100,000 numbers.
constexpr int64_t kRangeMax = 100'000;

Result<Value> range(Runtime& runtime, const Arguments& arguments) {
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) return bad("takes one to three numbers");
  for (const Value& value : arguments.positional) {
    if (!value.is_integral()) return bad(fmt::format("takes integers, not a {}", type_name(value)));
  }
  const int64_t start = count == 1 ? 0 : arguments.positional[0].as_int();
  const int64_t stop = arguments.positional[count == 1 ? 0 : 1].as_int();
  const int64_t step = count == 3 ? arguments.positional[2].as_int() : 1;
  if (step == 0) return bad("the step is 0");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() >= static_cast<size_t>(kRangeMax)) return bad(fmt::format("more than {} numbers", kRangeMax));
    items.push_back(Value::of_int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return runtime.new_list(items, ListKind::kRange);
}

constexpr Callable kGlobals[] = {{"raise_exception", raise_exception},
                                 {"strftime_now", strftime_now},
                                 {"namespace", make_namespace},
                                 {"range", range},
                                 {"dict", dict}};

}  // namespace

std::span<const Callable> globals() { return kGlobals; }

const Callable* find_global(std::string_view name) {
  const auto found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                  [&](const Callable& callable) { return callable.name == name; });
  return found == std::end(kGlobals) ? nullptr : &*found;
}

}  // namespace baton::jinja
