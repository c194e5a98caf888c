// A client for tests of the server: sends what it is told, byte by byte, and reads what comes. TCP or a Unix socket.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "baton/http/server.h"

namespace baton::http {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class TestClient {
 public:
  explicit TestClient(uint16_t port, int receive_bytes = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  explicit TestClient(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  TestClient(TestClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;
  ~TestClient() { close(); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void end_writing() { ::shutdown(fd_, SHUT_WR); }

  // False: the server closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // What comes until `end` was seen, the server closed, or the time is over.
  std::string read_until(std::string_view end, milliseconds timeout = milliseconds(5000)) {
    const auto limit = steady_clock::now() + timeout;
    while (true) {
      const size_t at = end.empty() ? buffer_.npos : buffer_.find(end);
      if (at != buffer_.npos) return take(at + end.size());
      const auto left = std::chrono::duration_cast<milliseconds>(limit - steady_clock::now()).count();
      pollfd wait{fd_, POLLIN, 0};
      if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) <= 0) return take(buffer_.size());
      char bytes[16384];
      const ssize_t size = ::recv(fd_, bytes, sizeof bytes, 0);
      if (size <= 0) {
        closed_ = true;
        was_reset_ = size < 0;
        return take(buffer_.size());
      }
      buffer_.append(bytes, static_cast<size_t>(size));
    }
  }
  // A whole answer with a Content-Length.
  std::string read_answer(milliseconds timeout = milliseconds(5000)) {
    std::string head = read_until("\r\n\r\n", timeout);
    const size_t at = head.find("Content-Length: ");
    if (at == head.npos) return head;
    const size_t length = std::stoul(head.substr(at + 16));
    while (buffer_.size() < length && !closed_) {
      pollfd wait{fd_, POLLIN, 0};
      if (::poll(&wait, 1, static_cast<int>(timeout.count())) <= 0) break;
      char bytes[16384];
      const ssize_t size = ::recv(fd_, bytes, sizeof bytes, 0);
      closed_ = size <= 0;
      if (size > 0) buffer_.append(bytes, static_cast<size_t>(size));
    }
    return head + take(std::min(length, buffer_.size()));
  }
  std::string read_to_end(milliseconds timeout = milliseconds(5000)) { return read_until({}, timeout); }
  bool closed() const { return closed_; }        // seen by a read
  bool was_reset() const { return was_reset_; }  // and not in an orderly way

 private:
  std::string take(size_t size) {
    std::string out = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return out;
  }

  int fd_ = -1;
  bool connected_ = false, closed_ = false, was_reset_ = false;
  std::string buffer_;
};

inline Response test_error(int status, const std::string& message) {
  return {status, {{"Content-Type", "text/plain"}}, "error " + std::to_string(status) + ": " + message + "\n"};
}

inline std::unique_ptr<Server> test_server(Server::Handler handler, Options options = {}) {
  options.port = 0;
  auto server = Server::open(options, std::move(handler), test_error);
  return server ? std::move(*server) : nullptr;
}

// Answers with what it was asked.
inline void echo(const std::shared_ptr<Exchange>& exchange) {
  const Request& request = exchange->request();
  std::string text = request.method + " " + request.path;
  for (const auto& [name, value] : request.query) text += " " + name + "=" + value;
  exchange->respond({200, {{"Content-Type", "text/plain"}}, text + "|" + request.body});
}

inline bool eventually(const std::function<bool()>& is_so, milliseconds timeout = milliseconds(5000)) {
  for (const auto limit = steady_clock::now() + timeout; !is_so();) {
    if (steady_clock::now() > limit) return false;
    ::usleep(2000);
  }
  return true;
}

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

}  // namespace baton::http
