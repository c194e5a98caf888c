// What a request may look like, line by line; see head.h.
#include "baton/http/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace baton::http {
namespace {

constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";

bool is_token_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kTokenMarks.find(c) != std::string_view::npos;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// What at most one of may be sent: two readers could each believe another.
constexpr std::string_view kSingle[] = {"host",   "content-length", "transfer-encoding", "content-type",
                                        "expect", "authorization",  "x-api-key",         "x-request-id"};

std::optional<Refusal> check_host(std::string_view value) {
  if (value.empty() || value.find_first_of(" \t/\\@?#,") != std::string_view::npos) {
    return bad_request("the header Host is not a host");
  }
  return std::nullopt;
}

std::optional<Refusal> check_content_length(std::string_view value, const Limits& limits, HeadFacts& facts) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), facts.content_length);
  const bool digits =
      !value.empty() && std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return bad_request("Content-Length must be one decimal number");
  if (error != std::errc() || end != value.data() + value.size() || facts.content_length > limits.body_bytes_max) {
    return Refusal{413, fmt::format("the body is larger than {} bytes", limits.body_bytes_max)};
  }
  return std::nullopt;
}

bool lists(std::string_view value, std::string_view word) {
  while (!value.empty()) {
    const size_t comma = std::min(value.find(','), value.size());
    if (same_word(trimmed(value.substr(0, comma)), word)) return true;
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
  return false;
}

// What one header means for the reading of the request.
std::optional<Refusal> read_fact(std::string_view name, std::string_view value, const Limits& limits,
                                 HeadFacts& facts) {
  if (name == "host") return check_host(value);
  if (name == "content-length") return check_content_length(value, limits, facts);
  if (name == "transfer-encoding") {
    if (!facts.http11) return bad_request("Transfer-Encoding needs HTTP/1.1");
    if (!same_word(value, "chunked")) return bad_request("Transfer-Encoding can be 'chunked' and nothing else");
    facts.chunked = true;
  } else if (name == "connection") {
    facts.close = facts.close || lists(value, "close");
  } else if (name == "upgrade" && lists(value, "websocket")) {
    return bad_request("websockets are not offered; answers stream as server-sent events");
  } else if (name == "expect") {
    if (!same_word(value, "100-continue")) return Refusal{417, "the only expectation known is 100-continue"};
    facts.expects_continue = facts.http11;
  }
  return std::nullopt;
}

std::optional<Refusal> check_whole(const uint32_t (&seen)[std::size(kSingle)], HeadFacts& facts) {
  for (size_t i = 0; i < std::size(kSingle); ++i) {
    if (seen[i] > 1) return bad_request(fmt::format("the header {} came {} times", kSingle[i], seen[i]));
  }
  if (seen[1] && seen[2]) return bad_request("Content-Length and Transfer-Encoding came both");
  if (facts.http11 && !seen[0]) return bad_request("the header Host is missing");
  if (!facts.http11) facts.close = true;
  return std::nullopt;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = lower(c);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

// As RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
    const uint8_t first = byte(i);
    const size_t more = first < 0x80 ? 0 : first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first >= 0x80 && (first < 0xc2 || first > 0xf4)) return false;
    if (text.size() - i <= more) return false;
    for (size_t k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    if (first == 0xe0 && byte(i + 1) < 0xa0) return false;
    if (first == 0xed && byte(i + 1) > 0x9f) return false;
    if (first == 0xf0 && byte(i + 1) < 0x90) return false;
    if (first == 0xf4 && byte(i + 1) > 0x8f) return false;
    i += more + 1;
  }
  return true;
}

// Empty: a wrong escape, a control character or no UTF-8.
std::optional<std::string> decoded(std::string_view text, bool plus_is_blank) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (text.size() - i < 3) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_blank) {
      c = ' ';
    }
    if (c == '\0') return std::nullopt;
    out += c;
  }
  if (!is_utf8(out)) return std::nullopt;
  return out;
}

// Nothing that a file system could take for a step upwards, whatever escape it was written with.
bool has_dot_segment(std::string_view path) {
  while (!path.empty()) {
    const size_t end = std::min(path.find_first_of("/\\"), path.size());
    const std::string_view segment = path.substr(0, end);
    if (segment == "." || segment == "..") return true;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return false;
}

}  // namespace

bool has_control(std::string_view line) {
  return std::any_of(line.begin(), line.end(),
                     [](char c) { return (static_cast<uint8_t>(c) < 0x20 && c != '\t') || c == 0x7f; });
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_character);
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

constexpr const char* kNoPath = "the target in the request line must be a path that begins with '/'";

// Of a target that has one, "/..." or "http://HOST/..." as proxies send it; empty: it has none.
std::string_view path_of(std::string_view target) {
  const size_t begin = target.starts_with("http://") ? 7 : target.starts_with("https://") ? 8 : 0;
  const size_t slash = begin == 0 ? 0 : target.find('/', begin);
  if (slash == target.npos || slash >= target.size() || (begin > 0 && slash == begin) || target[slash] != '/')
    return {};
  return target.substr(slash);
}

std::optional<Refusal> check_request_line(std::string_view line, HeadFacts& facts) {
  const size_t first = line.find(' '), second = first == line.npos ? line.npos : line.find(' ', first + 1);
  if (!is_token(line.substr(0, std::min(first, line.size())))) {
    return bad_request("the request does not begin with a method: this port speaks HTTP/1.1");
  }
  if (second == line.npos) return bad_request("the request line has no version: this server speaks HTTP/1.1");
  const std::string_view target = line.substr(first + 1, second - first - 1), version = line.substr(second + 1);
  if (version == "HTTP/2.0" || version == "HTTP/2") return bad_request("HTTP/2 is not spoken here; use HTTP/1.1");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return bad_request("the version in the request line must be HTTP/1.1");
  }
  facts.http11 = version == "HTTP/1.1";
  if (path_of(target).empty()) return bad_request(kNoPath);
  return std::nullopt;
}

std::optional<Refusal> check_field_line(std::string_view line) {
  if (line.empty() || line[0] == ' ' || line[0] == '\t') {
    return bad_request("a header goes on in the next line (obsolete folding)");
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return bad_request("a header has no colon");
  if (!is_token(line.substr(0, colon))) return bad_request("the name of a header has a character that cannot be there");
  if (has_control(line.substr(colon + 1))) return bad_request("the value of a header has a control character");
  return std::nullopt;
}

std::optional<Refusal> check_head(std::string_view head, const Limits& limits, HeadFacts& facts) {
  facts = {};
  uint32_t seen[std::size(kSingle)] = {};
  size_t end = head.find("\r\n"), fields = 0;
  if (end == head.npos) return bad_request("the request line has no end");
  if (auto refusal = check_request_line(head.substr(0, end), facts)) return refusal;
  for (head.remove_prefix(end + 2); head != "\r\n"; head.remove_prefix(end + 2)) {
    end = head.find("\r\n");
    if (end == head.npos) return bad_request("a header line has no end");
    const std::string_view line = head.substr(0, end);
    if (auto refusal = check_field_line(line)) return refusal;
    if (++fields > kHeaderFieldsMax) return Refusal{431, fmt::format("more than {} headers", kHeaderFieldsMax)};
    const size_t colon = line.find(':');
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(), lower);
    for (size_t i = 0; i < std::size(kSingle); ++i) seen[i] += name == kSingle[i];
    if (auto refusal = read_fact(name, trimmed(line.substr(colon + 1)), limits, facts)) return refusal;
  }
  return check_whole(seen, facts);
}

std::optional<Refusal> read_target(std::string_view target, Request& request) {
  const std::string_view whole = target;
  target = path_of(whole);
  if (target.empty()) return bad_request(kNoPath);
  if (whole.size() > target.size()) {
    // Of two names for the server one would have to be believed.
    const std::string_view host =
        whole.substr(whole.find("//") + 2, whole.size() - whole.find("//") - 2 - target.size());
    const std::string* field = request.header("host");
    if (field == nullptr || !same_word(*field, host))
      return bad_request("the target in the request line names another host than the Host header");
  }
  for (const char c : target) {
    if (static_cast<uint8_t>(c) <= 0x20 || c == 0x7f || c == '#' || c == '\\') {
      return bad_request("the target in the request line has a character that must be escaped");
    }
  }
  const size_t mark = std::min(target.find('?'), target.size());
  auto path = decoded(target.substr(0, mark), false);
  if (!path) return bad_request("the path has a wrong escape, a NUL or is not UTF-8");
  if (has_control(*path) || path->find('\t') != path->npos) return bad_request("the path has a control character");
  if (has_dot_segment(*path)) return bad_request("the path has a segment '.' or '..'");
  request.path = *std::move(path);
  request.query.clear();
  std::string_view rest = target.substr(std::min(mark + 1, target.size()));
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    const size_t equals = std::min(pair.find('='), pair.size());
    auto name = decoded(pair.substr(0, equals), true);
    auto value = decoded(pair.substr(std::min(equals + 1, pair.size())), true);
    if (!name || !value) return bad_request("the query has a wrong escape, a NUL or is not UTF-8");
    if (!pair.empty()) request.query.emplace_back(*std::move(name), *std::move(value));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
  }
  return std::nullopt;
}

}  // namespace baton::http
