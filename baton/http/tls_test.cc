// TLS with a certificate made here: requests, answers in pieces, what is no TLS, and the errors of files.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "baton/base/temporary_folder.h"
#include "baton/http/server.h"
#include "tests/support/http_client.h"

#if defined(BATON_OPENSSL)
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#endif

namespace baton::http {
namespace {

#if defined(BATON_OPENSSL)

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

struct Files {
  std::filesystem::path certificate, key;
};

// A self-signed certificate for "localhost", and its key.
Files make_files(const std::filesystem::path& folder) {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const Owned<X509> certificate(X509_new(), X509_free);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  const Files files{folder / "certificate.pem", folder / "key.pem"};
  const Owned<BIO> out(BIO_new_file(files.certificate.c_str(), "w"), BIO_free_all);
  PEM_write_bio_X509(out.get(), certificate.get());
  const Owned<BIO> key_out(BIO_new_file(files.key.c_str(), "w"), BIO_free_all);
  PEM_write_bio_PrivateKey(key_out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return files;
}

// TLS on a connected client.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port, const unsigned char* protocols = nullptr, unsigned size = 0) : client_(port) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    ssl_.reset(SSL_new(context_.get()));
    if (protocols) SSL_set_alpn_protos(ssl_.get(), protocols, size);
    SSL_set_fd(ssl_.get(), client_.fd());
    connected_ = SSL_connect(ssl_.get()) == 1;
  }
  bool connected() const { return connected_; }
  SSL* ssl() { return ssl_.get(); }
  bool send(std::string_view bytes) { return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0; }
  std::string read_until(std::string_view end) {
    std::string out;
    char bytes[4096];
    while (end.empty() || out.find(end) == out.npos) {
      const int size = SSL_read(ssl_.get(), bytes, sizeof bytes);
      if (size <= 0) break;
      out.append(bytes, static_cast<size_t>(size));
    }
    return out;
  }
  void close() { client_.close(); }

 private:
  TestClient client_;
  Owned<SSL_CTX> context_{nullptr, SSL_CTX_free};
  Owned<SSL> ssl_{nullptr, SSL_free};
  bool connected_ = false;
};

class Tls : public testing::Test {
 protected:
  void SetUp() override {
    auto folder = TemporaryFolder::create("baton-http-test");
    ASSERT_TRUE(folder);
    folder_.emplace(*std::move(folder));
    const Files files = make_files(folder_->path());
    options_.tls_certificate = files.certificate;
    options_.tls_key = files.key;
  }
  std::optional<TemporaryFolder> folder_;
  Options options_;
};

TEST_F(Tls, AnswersWholeAndInPieces) {
  const auto handler = [](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->request().path != "/pieces") return echo(exchange);
    exchange->begin(200, {});
    for (int i = 0; i < 3; ++i) exchange->try_write("data: " + std::string(40'000, 'x') + "\n\n");
    exchange->end();
  };
  const auto server = test_server(handler, options_);
  ASSERT_TRUE(server);
  EXPECT_EQ(server->address(), "https://127.0.0.1:" + std::to_string(server->port()));
  const unsigned char both[] = "\x02h2\x08http/1.1";
  TlsClient client(server->port(), both, sizeof both - 1);
  ASSERT_TRUE(client.connected());
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(client.ssl(), &chosen, &size);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(chosen), size), "http/1.1");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"));
    EXPECT_TRUE(client.read_until("hello").ends_with("POST /x|hello"));
  }
  ASSERT_TRUE(client.send("GET /pieces HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_GT(client.read_until("0\r\n\r\n").size(), 120'000u);
  ASSERT_TRUE(client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  EXPECT_TRUE(client.read_until({}).ends_with("GET /x|"));
  EXPECT_EQ(SSL_get_shutdown(client.ssl()) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN) << "closed by TLS too";
}

TEST_F(Tls, WhoLeavesIsNoticedAndBadRequestsAreTold) {
  std::mutex mutex;
  std::shared_ptr<Exchange> kept;
  const auto server = test_server(
      [&](std::shared_ptr<Exchange> exchange) {
        const std::lock_guard lock(mutex);
        kept = std::move(exchange);
      },
      options_);
  TlsClient bad(server->port()), client(server->port());
  ASSERT_TRUE(bad.connected() && client.connected());
  ASSERT_TRUE(bad.send("GET /../x HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_EQ(bad.read_until({}).find("HTTP/1.1 400 "), 0u);
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return kept != nullptr;
  }));
  client.close();
  EXPECT_TRUE(eventually([&] { return kept->gone(); }, milliseconds(1000)));
}

TEST_F(Tls, WhatIsNoTlsIsCutAndTheHandshakeHasATime) {
  options_.limits.header_timeout = milliseconds(100);
  const auto server = test_server(echo, options_);
  TestClient plain(server->port()), silent(server->port());
  ASSERT_TRUE(plain.send(kGet));
  EXPECT_EQ(plain.read_to_end().find("HTTP"), std::string::npos);
  EXPECT_EQ(silent.read_to_end(), "");
  EXPECT_TRUE(plain.closed() && silent.closed());
  const unsigned char h2[] = "\x02h2";
  EXPECT_FALSE(TlsClient(server->port(), h2, sizeof h2 - 1).connected());
  EXPECT_TRUE(eventually([&] { return server->counts().connections == 0; }));
}

TEST_F(Tls, ErrorsNameTheFile) {
  const auto message = [&](const Options& options) {
    const auto server = Server::open(options, echo, test_error);
    return server ? std::string("opened") : server.error().message;
  };
  options_.port = 0;
  Options one = options_, missing = options_, wrong = options_, both = options_, other = options_;
  one.tls_key.clear();
  EXPECT_NE(message(one).find("both a certificate and its key"), std::string::npos) << message(one);
  missing.tls_certificate = folder_->path() / "none.pem";
  EXPECT_NE(message(missing).find("none.pem"), std::string::npos) << message(missing);
  wrong.tls_key = folder_->path() / "wrong.pem";
  std::ofstream(wrong.tls_key) << "no key\n";
  EXPECT_NE(message(wrong).find("wrong.pem"), std::string::npos) << message(wrong);
  both.unix_socket = folder_->path() / "socket";
  EXPECT_NE(message(both).find("Unix socket"), std::string::npos) << message(both);
  std::filesystem::create_directory(folder_->path() / "other");
  other.tls_key = make_files(folder_->path() / "other").key;
  EXPECT_NE(message(other).find("other"), std::string::npos) << message(other);
}

#else

TEST(Tls, IsRefusedWhereTheBuildHasNone) {
  Options options;
  options.tls_certificate = options.tls_key = "x.pem";
  const auto server = Server::open(options, echo, test_error);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, Code::kUnsupported);
}

#endif

}  // namespace
}  // namespace baton::http
