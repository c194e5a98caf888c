// TLS under a connection, with OpenSSL where the build has it. No other file names OpenSSL.
#pragma once

#include <filesystem>
#include <memory>

#include "baton/base/status.h"
#include "baton/http/transport.h"

namespace baton::http {

class TlsContext {
 public:
  // kUnsupported: this build has no OpenSSL. Errors of the files name them.
  static Result<std::unique_ptr<TlsContext>> open(const std::filesystem::path& certificate,
                                                  const std::filesystem::path& key);
  virtual ~TlsContext() = default;
  // Any thread. The context lives longer.
  virtual std::unique_ptr<Transport> transport(StreamSocket socket) = 0;
};

}  // namespace baton::http
