// Origins are compared as browsers write them.
#include "baton/serve/cors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace baton::serve {
namespace {

constexpr size_t kOriginsMax = 64, kOriginBytesMax = 512, kAskedBytesMax = 4096;

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return made;
}

bool is_of(std::string_view text, std::string_view marks) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || marks.find(c) != std::string_view::npos;
  });
}

// Null where it is one.
const char* problem_of(std::string_view origin) {
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos || !is_of(origin.substr(0, scheme), "+-.")) return "a scheme, \"https://\"";
  std::string_view host = origin.substr(scheme + 3);
  if (host.find_first_of("/?#") != std::string_view::npos) return "nothing behind the host and port, no '/' either";
  if (host.find('*') != std::string_view::npos) return "a whole host: '*' stands alone or not at all";
  const size_t colon = host.starts_with('[') ? host.find(':', host.find(']')) : host.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view digits = host.substr(colon + 1);
    uint16_t port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size() || port == 0) return "a port from 1 to 65535";
    host = host.substr(0, colon);
  }
  return is_of(host, host.starts_with('[') ? "[]:." : "-._") ? nullptr : "a host";
}

// Names of headers, as a browser lists them.
bool is_list_of_names(std::string_view text) {
  return text.size() <= kAskedBytesMax && is_of(lower(text), "!#$%&'*+-.^_`|~, \t");
}

}  // namespace

Status Cors::add(std::string_view origin) {
  if (origin == "*") {
    all_ = true;
    return {};
  }
  const std::string made = lower(origin);
  if (origins_.size() == kOriginsMax)
    return fail(Code::kInvalidInput, fmt::format("more than {} origins", kOriginsMax));
  const char* problem = made == "null"                  ? nullptr
                        : made.size() > kOriginBytesMax ? "at most 512 bytes"
                                                        : problem_of(made);
  if (problem != nullptr) {
    return fail(Code::kInvalidInput,
                fmt::format("'{}' is no origin: it must have {}; like https://example.com or http://localhost:3000, "
                            "or * for all",
                            origin.substr(0, 100), problem));
  }
  origins_.push_back(made);
  return {};
}

bool Cors::takes_null() const { return allows("null"); }

bool Cors::allows(std::string_view origin) const {
  return all_ || std::find(origins_.begin(), origins_.end(), lower(origin)) != origins_.end();
}

http::Headers Cors::headers(const std::string* origin) const {
  http::Headers made;
  if (empty()) return made;
  if (!all_) made.emplace_back("Vary", "Origin");  // a cache must not give one page what is for another
  if (origin == nullptr || !allows(*origin)) return made;
  made.emplace_back("Access-Control-Allow-Origin", all_ ? "*" : *origin);
  made.emplace_back("Access-Control-Expose-Headers",
                    "x-request-id, traceresponse, retry-after, retry-after-ms, x-ratelimit-limit-requests, "
                    "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
                    "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens");
  return made;
}

bool Cors::is_preflight(const http::Request& request) {
  return request.method == "OPTIONS" && request.header("origin") != nullptr &&
         request.header("access-control-request-method") != nullptr;
}

http::Response Cors::preflight(const http::Request& request, const std::string& methods) const {
  http::Response made{.status = 204, .headers = {{"Access-Control-Allow-Methods", methods}}};
  const std::string* asked = request.header("access-control-request-headers");
  // Clients send headers of their own (x-stainless-*): a list would always be too short.
  if (asked != nullptr && is_list_of_names(*asked)) made.headers.emplace_back("Access-Control-Allow-Headers", *asked);
  made.headers.emplace_back("Access-Control-Max-Age", "600");
  made.headers.emplace_back("Vary", "Access-Control-Request-Headers");
  return made;
}

}  // namespace baton::serve
