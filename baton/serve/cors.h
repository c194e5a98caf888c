// Which pages of other sites may ask: https://fetch.spec.whatwg.org/#http-cors-protocol. Pure. Credentials of the
// browser (cookies) are never allowed: keys come in headers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/http/server.h"

namespace baton::serve {

// Empty: none, which is the default.
class Cors {
 public:
  // "https://host" or "http://host:port" as browsers send it, "null" (files and sandboxed frames: of anybody), or "*".
  // The message says what is wrong with it.
  Status add(std::string_view origin);

  bool empty() const { return origins_.empty() && !all_; }
  bool all() const { return all_; }
  bool takes_null() const;  // also where all are taken
  bool allows(std::string_view origin) const;

  // Headers of every answer; of `origin` (null: the request has none) where it is allowed.
  http::Headers headers(const std::string* origin) const;
  // Whether this is a browser's question before a request.
  static bool is_preflight(const http::Request& request);
  // Its answer, beside those; `methods`: of the path, "GET, HEAD".
  http::Response preflight(const http::Request& request, const std::string& methods) const;

 private:
  std::vector<std::string> origins_;  // in lower case
  bool all_ = false;
};

}  // namespace baton::serve
