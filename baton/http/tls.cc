// TLS with OpenSSL, or the answer that there is none; see tls.h. TLS 1.2 and 1.3 as OpenSSL's defaults have them, no
// renegotiation, http/1.1 in ALPN. A connection costs some 50 KB: OpenSSL's state and Asio's two buffers.
#include "baton/http/tls.h"

#include <fmt/format.h>

#if defined(BATON_OPENSSL)
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#endif

namespace baton::http {

#if defined(BATON_OPENSSL)
namespace {

namespace net = boost::asio;
namespace ssl = net::ssl;

constexpr size_t kTlsReadBytes = 4 * 1024;
constexpr std::string_view kProtocol = "http/1.1";

class TlsTransport final : public Transport {
 public:
  TlsTransport(StreamSocket socket, ssl::context& context) : stream_(std::move(socket), context) {}

  void open(std::shared_ptr<StreamUser> user) override {
    stream_.async_handshake(ssl::stream_base::server,
                            [user = std::move(user)](error_code error) { user->on_open(error); });
  }

  void read(std::shared_ptr<StreamUser> user) override {
    stream_.async_read_some(net::buffer(buffer_), [this, user = std::move(user)](error_code error, size_t size) {
      user->on_read(error, {buffer_.data(), size});
    });
  }

  void write(std::shared_ptr<StreamUser> user, std::string_view bytes) override {
    stream_.async_write_some(
        net::buffer(bytes.data(), bytes.size()),
        [user = std::move(user)](error_code error, size_t size) { user->on_written(error, size); });
  }

  // Says by TLS that nothing follows. The client's own word for it, and its end of the stream, is what `read` sees.
  void end_writing(std::shared_ptr<StreamUser> user) override {
    stream_.async_shutdown([user = std::move(user)](error_code) {});
  }

  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  ssl::stream<StreamSocket> stream_;
  std::array<char, kTlsReadBytes> buffer_;
};

class OpenSslContext final : public TlsContext {
 public:
  Status load(const std::filesystem::path& certificate, const std::filesystem::path& key);
  std::unique_ptr<Transport> transport(StreamSocket socket) override {
    return std::make_unique<TlsTransport>(std::move(socket), context_);
  }

 private:
  ssl::context context_{ssl::context::tls_server};
};

std::string last_reason() {
  // What the system said comes first, and is hidden by what was made of it.
  if (const auto first = ::ERR_peek_error(); ERR_SYSTEM_ERROR(first)) {
    ::ERR_clear_error();
    return std::system_category().message(ERR_GET_REASON(first));
  }
  const auto code = ::ERR_peek_last_error();
  const char* text = ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  return text ? text : "not readable";
}

// A key with a password would be asked for on the terminal.
int no_password(char*, int, int, void*) { return -1; }

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned size,
                    void*) {
  for (unsigned at = 0; at < size; at += in[at] + 1u) {
    const std::string_view offered(reinterpret_cast<const char*>(in + at + 1), std::min<size_t>(in[at], size - at - 1));
    if (offered != kProtocol) continue;
    *out = in + at + 1;
    *out_size = in[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;  // h2 alone: better told now than by bytes that it cannot read
}

Status OpenSslContext::load(const std::filesystem::path& certificate, const std::filesystem::path& key) {
  SSL_CTX* context = context_.native_handle();
  ::ERR_clear_error();
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  ::SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  ::SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  ::SSL_CTX_set_default_passwd_cb(context, no_password);
  if (::SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    return fail(Code::kInvalidInput, fmt::format("TLS certificate {}: {}; it must be a PEM file, the server's first",
                                                 certificate.string(), last_reason()));
  }
  if (::SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return fail(Code::kInvalidInput, fmt::format("TLS key {}: {}; it must be a PEM file without a password, of the "
                                                 "certificate {}",
                                                 key.string(), last_reason(), certificate.string()));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::open(const std::filesystem::path& certificate,
                                                     const std::filesystem::path& key) {
  auto context = std::make_unique<OpenSslContext>();
  BATON_OK(context->load(certificate, key));
  return context;
}

#else

Result<std::unique_ptr<TlsContext>> TlsContext::open(const std::filesystem::path&, const std::filesystem::path&) {
  return fail(Code::kUnsupported, "this build has no TLS: build it where OpenSSL is, or put a proxy in front");
}

#endif

}  // namespace baton::http
