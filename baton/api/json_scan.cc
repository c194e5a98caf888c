// JSON as RFC 8259 has it, numbers that a double can hold, escapes that are characters.
#include "baton/api/json_scan.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <utility>

namespace baton {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_of(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Where a number's text stands: 0 begun, 1 "-", 2 "0", 3 digits, 4 ".", 5 fraction, 6 "e", 7 its sign, 8 its digits; -1
// no number.
int number_state(int state, char c) {
  const bool exponent = c == 'e' || c == 'E';
  switch (state) {
    case 0:
    case 1:
      if (c == '-') return state == 0 ? 1 : -1;
      return c == '0' ? 2 : is_digit(c) ? 3 : -1;
    case 2:
    case 3:
      if (is_digit(c)) return state == 3 ? 3 : -1;
      return c == '.' ? 4 : exponent ? 6 : -1;
    case 4:
    case 5:
      if (is_digit(c)) return 5;
      return state == 5 && exponent ? 6 : -1;
    case 6:
      if (c == '+' || c == '-') return 7;
      [[fallthrough]];
    default:
      return is_digit(c) ? 8 : -1;
  }
}

int number_state(std::string_view text) {
  int state = 0;
  for (const char c : text) {
    if (state < 0) break;
    state = number_state(state, c);
  }
  return state;
}

// A whole number that a double can hold.
bool is_number(const std::string& text) {
  const int state = number_state(text);
  const bool whole = state == 2 || state == 3 || state == 5 || state == 8;
  return whole && std::isfinite(std::strtod(text.c_str(), nullptr));
}

}  // namespace

JsonScan::Step JsonScan::ended() {
  in_ = In::kNothing;
  want_ = Want::kCommaOrEnd;
  return open_.empty() ? Step::kEnd : Step::kMore;
}

void JsonScan::give(std::string* out) {
  *out += held_;
  held_.clear();
}

// Four digits of \u were read: false when they belong to no character.
bool JsonScan::end_of_escape() {
  in_ = In::kString;
  const bool high = hex_ >= 0xD800 && hex_ < 0xDC00, low = hex_ >= 0xDC00 && hex_ < 0xE000;
  if (pair_open_ != low) return false;
  pair_open_ = escape_next_ = high;
  return true;
}

JsonScan::Step JsonScan::in_string(char c, std::string* out) {
  if (in_ == In::kHex) {
    const int digit = hex_of(c);
    if (digit < 0) return Step::kBad;
    hex_ = hex_ * 16 + static_cast<uint32_t>(digit);
    if (++hex_digits_ == 4 && !end_of_escape()) return Step::kBad;
    held_.push_back(c);
    if (hex_digits_ == 4 && !pair_open_) give(out);
    return Step::kMore;
  }
  if (in_ == In::kEscape) {
    if (c == 'u') {
      in_ = In::kHex;
      hex_ = 0;
      hex_digits_ = 0;
    } else if (pair_open_ || std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos) {
      return Step::kBad;
    } else {
      in_ = In::kString;
    }
    held_.push_back(c);
    if (in_ == In::kString) give(out);
    return Step::kMore;
  }
  if (c == '\\') {
    in_ = In::kEscape;
    escape_next_ = false;
    held_.push_back(c);
    return Step::kMore;
  }
  if (escape_next_) return Step::kBad;
  if (c == '"') {
    out->push_back(c);
    if (!key_) return ended();
    in_ = In::kNothing;
    want_ = Want::kColon;
    return Step::kMore;
  }
  if (static_cast<unsigned char>(c) < 0x20) {
    *out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : fmt::format("\\u{:04x}", static_cast<int>(c));
    return Step::kMore;
  }
  out->push_back(c);
  return Step::kMore;
}

JsonScan::Step JsonScan::in_number(char c, std::string* out) {
  held_.push_back(c);
  if (number_state(held_) >= 0 && held_.size() <= kNumberBytesMax) return Step::kMore;
  const bool more = number_state(held_) >= 0;
  held_.pop_back();
  if (more || !is_number(held_)) return Step::kBad;
  if (ended() == Step::kEnd) {
    give(out);
    return Step::kBehind;
  }
  std::string number = std::exchange(held_, {}), behind;
  const Step step = take(c, &behind);
  if (step == Step::kBad) {
    held_ = std::move(number);
  } else {
    *out += number + behind;
  }
  return step;
}

JsonScan::Step JsonScan::begin_value(char c) {
  key_ = false;
  if (c == '{' || c == '[') {
    if (open_.size() >= kDepthMax) return Step::kBad;
    open_.push_back(c);
    want_ = c == '{' ? Want::kKeyOrEnd : Want::kValueOrEnd;
  } else if (c == '"') {
    in_ = In::kString;
  } else if (c == '-' || is_digit(c)) {
    in_ = In::kNumber;
    held_.assign(1, c);
  } else if (c == 't' || c == 'f' || c == 'n') {
    in_ = In::kWord;
    held_.assign(1, c);
    word_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
  } else {
    return Step::kBad;
  }
  return Step::kMore;
}

JsonScan::Step JsonScan::close(char c) {
  if (open_.empty() || (open_.back() == '{' ? '}' : ']') != c) return Step::kBad;
  open_.pop_back();
  return ended();
}

JsonScan::Step JsonScan::take(char c, std::string* out) {
  if (in_ == In::kString || in_ == In::kEscape || in_ == In::kHex) return in_string(c, out);
  if (in_ == In::kNumber) return in_number(c, out);
  Step step = Step::kMore;
  if (in_ == In::kWord) {
    if (c != word_.front()) return Step::kBad;
    word_.remove_prefix(1);
    held_.push_back(c);
    if (!word_.empty()) return step;
    give(out);
    return ended();
  }
  if (is_json_blank(c)) {
    step = Step::kMore;
  } else if ((c == '}' && (want_ == Want::kKeyOrEnd || want_ == Want::kCommaOrEnd)) ||
             (c == ']' && (want_ == Want::kValueOrEnd || want_ == Want::kCommaOrEnd))) {
    step = close(c);
  } else if (want_ == Want::kValue || want_ == Want::kValueOrEnd) {
    step = begin_value(c);
  } else if (c == '"' && (want_ == Want::kKey || want_ == Want::kKeyOrEnd)) {
    in_ = In::kString;
    key_ = true;
  } else if (c == ':' && want_ == Want::kColon) {
    want_ = Want::kValue;
  } else if (c == ',' && want_ == Want::kCommaOrEnd && !open_.empty()) {
    want_ = open_.back() == '{' ? Want::kKey : Want::kValue;
  } else {
    return Step::kBad;
  }
  if (step != Step::kBad && held_.empty()) out->push_back(c);
  return step;
}

bool JsonScan::whole_at_end() const { return in_ == In::kNumber && open_.empty() && is_number(held_); }

bool is_json(std::string_view text) {
  JsonScan scan;
  std::string taken;
  bool ended = false;
  for (const char c : text) {
    if (ended) {
      if (!is_json_blank(c)) return false;
      continue;
    }
    const JsonScan::Step step = scan.take(c, &taken);
    // What had to be escaped is a text that JSON does not allow.
    const bool changed = step != JsonScan::Step::kBehind && !taken.empty() && taken.back() != c;
    if (step == JsonScan::Step::kBad || changed) return false;
    taken.clear();
    if (step == JsonScan::Step::kBehind && !is_json_blank(c)) return false;
    ended = step != JsonScan::Step::kMore;
  }
  return ended || scan.whole_at_end();
}

}  // namespace baton
