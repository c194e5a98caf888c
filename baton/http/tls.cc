// TLS with OpenSSL, or the answer that there is none; see tls.h.
#include "baton/http/tls.h"

namespace baton::http {

Result<std::unique_ptr<TlsContext>> TlsContext::open(const std::filesystem::path&, const std::filesystem::path&) {
  return fail(Code::kUnsupported, "this build has no TLS: build it where OpenSSL is, or put a proxy in front");
}

}  // namespace baton::http
