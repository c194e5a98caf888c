// A transport that is a socket. It holds no buffer: it waits until there is something to read, and reads into one that
// all connections of a thread have in common. Thousands of idle connections cost no more than their sockets.
#include "baton/http/transport.h"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace baton::http {
namespace {

namespace net = boost::asio;

constexpr size_t kReadBytes = 64 * 1024;

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(StreamSocket socket) : socket_(std::move(socket)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
  }

  void open(std::shared_ptr<StreamUser> user) override {
    net::post(socket_.get_executor(), [user = std::move(user)] { user->on_open({}); });
  }

  void read(std::shared_ptr<StreamUser> user) override {
    socket_.async_wait(StreamSocket::wait_read, [this, user = std::move(user)](error_code error) {
      thread_local std::array<char, kReadBytes> buffer;
      size_t size = 0;
      if (!error) size = socket_.read_some(net::buffer(buffer), error);
      if (error == net::error::would_block || error == net::error::try_again) {
        read(user);
      } else {
        user->on_read(error, {buffer.data(), size});
      }
    });
  }

  void write(std::shared_ptr<StreamUser> user, std::string_view bytes) override {
    socket_.async_write_some(
        net::buffer(bytes.data(), bytes.size()),
        [user = std::move(user)](error_code error, size_t size) { user->on_written(error, size); });
  }

  void end_writing() override {
    error_code ignored;
    socket_.shutdown(StreamSocket::shutdown_send, ignored);
  }

  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  StreamSocket socket_;
};

}  // namespace

std::unique_ptr<Transport> plain_transport(StreamSocket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace baton::http
