// See answer_head.h.
#include "baton/http/answer_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <ctime>

#include "baton/http/head.h"

namespace baton::http {
namespace {

constexpr std::string_view kOurs[] = {"content-length", "connection", "date",
                                      "x-request-id",   "keep-alive", "transfer-encoding"};
constexpr std::string_view kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

bool is_ours(std::string_view name) {
  return std::any_of(std::begin(kOurs), std::end(kOurs), [&](std::string_view ours) { return same_word(name, ours); });
}

// IMF-fixdate of RFC 9110, section 5.6.7; no locale.
std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  if (!gmtime_r(&now, &parts)) return {};
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[parts.tm_wday % 7], parts.tm_mday,
                     kMonths[parts.tm_mon % 12], parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value) out += static_cast<uint8_t>(c) < 0x20 || c == 0x7f ? ' ' : c;
  out += "\r\n";
}

}  // namespace

bool has_no_body(int status) { return status < 200 || status == 204 || status == 304; }

std::string answer_head(int status, const Headers& headers, const std::string& request_id, Framing framing,
                        size_t length, bool close) {
  const auto reason =
      boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(static_cast<unsigned>(status)));
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", status, std::string_view(reason.data(), reason.size()));
  append_header(out, "Date", date());
  for (const auto& [name, value] : headers) {
    if (is_token(name) && !is_ours(name)) append_header(out, name, value);
  }
  if (!request_id.empty()) append_header(out, "X-Request-Id", request_id);
  if (framing == Framing::kLength) append_header(out, "Content-Length", fmt::to_string(length));
  if (framing == Framing::kChunked) append_header(out, "Transfer-Encoding", "chunked");
  append_header(out, "Connection", close ? "close" : "keep-alive");
  out += "\r\n";
  return out;
}

std::string chunk_size_line(size_t bytes) { return fmt::format("{:x}\r\n", bytes); }

}  // namespace baton::http
