// What a request may not look like, on the wire: each is answered with a clear 4xx, in the caller's format, and the
// connection closes. Request smuggling, paths that climb, other protocols, sizes.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "baton/http/server.h"
#include "tests/support/http_client.h"

namespace baton::http {
namespace {

struct BadRequest {
  int status;
  std::string bytes;
  std::string says;  // part of the message
};

std::string get(const std::string& target) { return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n"; }
std::string with(const std::string& headers, const std::string& body = "") {
  return "POST /x HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n\r\n" + body;
}
std::string chunks(const std::string& body) { return with("Transfer-Encoding: chunked", body); }

std::vector<BadRequest> smuggling() {
  using std::string_literals::operator""s;
  return {
      {400, with("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\nGET"), "both"},
      {400, with("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\nGET"), "both"},
      {400, with("Content-Length: 5\r\nContent-Length: 5", "hello"), "content-length came 2 times"},
      {400, with("Content-Length: 5\r\nContent-Length: 6", "hello"), "content-length came 2 times"},
      {400, with("Content-Length: 5, 5", "hello"), "decimal number"},
      {400, with("Content-Length: +5", "hello"), "decimal number"},
      {400, with("Content-Length: -1", "hello"), "decimal number"},
      {400, with("Content-Length: 0x5", "hello"), "decimal number"},
      {400, with("Content-Length: 5 5", "hello"), "decimal number"},
      {400, with("Content-Length:", "hello"), "decimal number"},
      {400, with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), "transfer-encoding came 2 times"},
      {400, with("Transfer-Encoding: gzip, chunked"), "nothing else"},
      {400, with("Transfer-Encoding: identity"), "nothing else"},
      {400, with("Transfer-Encoding: xchunked"), "nothing else"},
      {400, with("Transfer-Encoding: chunked\x0b"), "control character"},
      {400, with("Transfer-Encoding : chunked"), "name of a header"},
      {400, with("Content-Length\t: 5", "hello"), "name of a header"},
      {400, with(" X: y"), "folding"},
      {400, with("X: a\r\n b"), "folding"},
      {400, with("X: a\r\n\tContent-Length: 3"), "folding"},
      {400, with("X"), "no colon"},
      {400, with(": x"), "name of a header"},
      {400, with("X[]: y"), "name of a header"},
      {400, with("X: a\0b"s), "control character"},
      {400, with("X: a\rb"), "CR inside"},
      {400, with("X: a\nContent-Length: 5"), "LF alone"},
      {400, "GET / HTTP/1.1\nHost: a\n\n", "LF alone"},
      {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "needs HTTP/1.1"},
      {400, "GET / HTTP/1.1\r\n\r\n", "Host is missing"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "host came 2 times"},
      {400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "Host is not"},
      {400, "GET / HTTP/1.1\r\nHost: u@a/x\r\n\r\n", "Host is not"},
      {400, with("Authorization: a\r\nAuthorization: b"), "authorization came 2 times"},
      {400, with("Connection: a b"), "malformed"},
  };
}

std::vector<BadRequest> bad_chunks() {
  using std::string_literals::operator""s;
  return {
      {400, chunks("0x5\r\nhello\r\n0\r\n\r\n"), "followed by"},
      {400, chunks("-5\r\nhello\r\n0\r\n\r\n"), "hexadecimal"},
      {400, chunks("+5\r\nhello\r\n0\r\n\r\n"), "hexadecimal"},
      {400, chunks(" 5\r\nhello\r\n0\r\n\r\n"), "hexadecimal"},
      {400, chunks("5 \r\nhello\r\n0\r\n\r\n"), "followed by"},
      {400, chunks("\r\nhello\r\n0\r\n\r\n"), "hexadecimal"},
      {400, chunks("g\r\n"), "hexadecimal"},
      {400, chunks("00000000000000005\r\nhello\r\n"), "hexadecimal"},
      {413, chunks("FFFFFFFFFFFFFFFFF\r\n"), "larger than"},
      {413, chunks("FFFFFFFFFFFFFFFF\r\n"), "larger than"},
      {413, chunks("5\r\nhello\r\nFFFFFFFFFFFFFFFE\r\n"), "larger than"},
      {400, chunks("5\nhello\r\n0\r\n\r\n"), "without CR"},
      {400, chunks("5;a=\"\rb\"\r\nhello\r\n0\r\n\r\n"), "CR inside"},
      {400, chunks("5;a=\0\r\nhello\r\n0\r\n\r\n"s), "control character"},
      {400, chunks("5;" + std::string(2000, 'a') + "\r\nhello\r\n0\r\n\r\n"), "too long"},
      {400, chunks("5\r\nhello!\r\n0\r\n\r\n"), "longer than its size"},
      {400, chunks("5\r\nhello0\r\n\r\n"), "longer than its size"},
      {400, chunks("0\r\nX : y\r\n\r\n"), "name of a header"},
      {400, chunks("0\r\n X: y\r\n\r\n"), "folding"},
      {400, chunks("0\r\nX: y\n\r\n"), "without CR"},
  };
}

std::vector<BadRequest> bad_targets() {
  return {
      {400, get("http://b/x"), "another host"},
      {400, get("http://u@a/x"), "another host"},
      {400, get("http://a"), "begins with '/'"},
      {400, get("http:///x"), "begins with '/'"},
      {400, get("ftp://a/x"), "begins with '/'"},
      {400, get("http://a/../x"), "'..'"},
      {400, get("*"), "begins with '/'"},
      {400, "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", "begins with '/'"},
      {400, get(""), "begins with '/'"},
      {400, get("x"), "begins with '/'"},
      {400, get("/.."), "'..'"},
      {400, get("/../etc/passwd"), "'..'"},
      {400, get("/a/%2e%2e/b"), "'..'"},
      {400, get("/a/.%2E/b"), "'..'"},
      {400, get("/a%2f..%2fb"), "'..'"},
      {400, get("/a/..%5cb"), "'..'"},
      {400, get("/a/./b"), "'.'"},
      {400, get("/a\\..\\b"), "must be escaped"},
      {400, get("/a#b"), "must be escaped"},
      {400, get("/a%00b"), "NUL"},
      {400, get("/a%0d%0ab"), "control character"},
      {400, get("/a%zz"), "wrong escape"},
      {400, get("/a%"), "wrong escape"},
      {400, get("/a%f"), "wrong escape"},
      {400, get("/%ff"), "UTF-8"},
      {400, get("/%c0%ae%c0%ae/"), "UTF-8"},
      {400, get("/%e0%80%ae"), "UTF-8"},
      {400, get("/%ed%a0%80"), "UTF-8"},
      {400, get("/%f4%90%80%80"), "UTF-8"},
      {400, get("/%c3"), "UTF-8"},
      {400, get("/\xff"), ""},
      {400, get("/?a=%00"), "query"},
      {400, get("/?a=%ff"), "query"},
      {400, get("/?%"), "query"},
  };
}

std::vector<BadRequest> other_protocols_and_sizes() {
  using std::string_literals::operator""s;
  std::string many;
  for (int i = 0; i < 200; ++i) many += "X: y\r\n";
  return {
      {400, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"},
      {400, "GET /\r\n", "no version"},
      {400, "GET / HTTP/3\r\n", "HTTP/1.1"},
      {400, "GET / HTTP/1.2\r\n", "HTTP/1.1"},
      {400, "GET / http/1.1\r\n", "HTTP/1.1"},
      {400, "GET / HTTP/1.1 \r\n", "HTTP/1.1"},
      {400, "GET  / HTTP/1.1\r\n", "HTTP/1.1"},
      {400, " GET / HTTP/1.1\r\n", "method"},
      {400, "G@T / HTTP/1.1\r\n", "method"},
      {400, "\r\n\r\n\r\n\r\n", "empty lines"},
      {400, "\x16\x03\x01\x02\x00\x01"s, "TLS"},
      {400, "\0\0\0\0"s, "TLS"},
      {400, with("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"), "websockets"},
      {417, with("Expect: the-unexpected", ""), "100-continue"},
      {413, with("Content-Length: 99999999999999999999999"), "larger than"},
      {413, with("Content-Length: 33554433"), "larger than 33554432 bytes"},
      {414, "GET /" + std::string(20'000, 'a') + " HTTP/1.1\r\n", "16384"},
      {431, with("X: " + std::string(1 << 20, 'a')), "16384"},
      {431, with(many), "128 headers"},
  };
}

class BadRequests : public testing::Test {
 protected:
  void hold(const std::vector<BadRequest>& all) {
    for (const BadRequest& bad : all) {
      const std::string shown = testing::PrintToString(bad.bytes.substr(0, 100));
      TestClient client(server_->port());
      client.send(bad.bytes);
      const std::string answer = client.read_to_end();
      const std::string status = "HTTP/1.1 " + std::to_string(bad.status) + " ";
      EXPECT_EQ(answer.substr(0, status.size()), status) << shown << answer;
      EXPECT_NE(answer.find("\r\nConnection: close\r\n"), answer.npos) << shown;
      EXPECT_NE(answer.find("\r\n\r\nerror " + std::to_string(bad.status) + ": "), answer.npos) << shown << answer;
      EXPECT_NE(answer.find(bad.says), answer.npos) << shown << answer;
      EXPECT_EQ(answer.find("\nHTTP/1.1 "), answer.npos) << "one answer: " << shown << answer;
      EXPECT_EQ(answer.find(".cc"), answer.npos) << answer;
      EXPECT_TRUE(client.closed() && !client.was_reset()) << shown;
    }
    EXPECT_EQ(handled_, 0) << "none of them is a request";
    EXPECT_EQ(server_->counts().bad_requests, all.size());
    TestClient client(server_->port());
    ASSERT_TRUE(client.send(kGet));
    EXPECT_TRUE(client.read_answer().ends_with("GET /|"));
  }

  std::atomic<int> handled_{0};
  std::unique_ptr<Server> server_ = test_server([this](const std::shared_ptr<Exchange>& exchange) {
    ++handled_;
    echo(exchange);
  });
};

TEST_F(BadRequests, NothingIsSmuggled) { hold(smuggling()); }
TEST_F(BadRequests, ChunksAreExact) { hold(bad_chunks()); }
TEST_F(BadRequests, PathsDoNotClimb) { hold(bad_targets()); }
TEST_F(BadRequests, OtherProtocolsAndTooMuch) { hold(other_protocols_and_sizes()); }

// What looks odd and is allowed.
TEST(Requests, OddOnesThatAreFine) {
  const auto server = test_server(echo);
  const std::pair<std::string, std::string> all[] = {
      {"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /|"},
      {"GET //a/...%2F.b/ HTTP/1.1\r\nhOST:a\r\n\r\n", "GET //a/.../.b/|"},
      {"GET /?a=%26%3D&b&&=c&d=e=f HTTP/1.1\r\nHost: a\r\n\r\n", "GET / a=&= b= =c d=e=f|"},
      {"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\nX: \xff\tb \r\n\r\n", "GET /\xc3\xa4|"},
      {"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", "GET /|"},
      {"GET http://A/x?a=b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x a=b|"},
      {"DELETE /x HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 0\r\n\r\n", "DELETE /x|"},
      {"brew / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tCHUNKED\r\n\r\nA\r\n0123456789\r\n0000\r\n\r\n",
       "brew /|0123456789"},
  };
  for (const auto& [bytes, says] : all) {
    TestClient client(server->port());
    ASSERT_TRUE(client.send(bytes));
    EXPECT_TRUE(client.read_answer().ends_with("\r\n\r\n" + says)) << testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace baton::http
