// One small answer from a server of this machine or network, without TLS.
#pragma once

#include <string>

#include "baton/base/status.h"

namespace baton::cli {

// `url`: http://HOST[:PORT], or unix:SOCKET. The body of a 200; kUnavailable when nobody listens, kInvalidInput with
// what the server says for any other status. Waits at most 5 s.
Result<std::string> http_get(const std::string& url, const std::string& path, const std::string& api_key);

}  // namespace baton::cli
