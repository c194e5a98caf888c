// A transport that is a socket: it waits until there is something to read, and only then reads.
#include "baton/http/transport.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace baton::http {
namespace {

namespace net = boost::asio;

class PlainTransport final : public Transport {
 public:
  PlainTransport(StreamSocket socket, std::span<char> buffer) : socket_(std::move(socket)), buffer_(buffer) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
  }

  void open(std::shared_ptr<StreamUser> user) override {
    net::post(socket_.get_executor(), [user = std::move(user)] { user->on_open({}); });
  }

  void read(std::shared_ptr<StreamUser> user) override {
    socket_.async_wait(StreamSocket::wait_read, [this, user = std::move(user)](error_code error) {
      size_t size = 0;
      if (!error) size = socket_.read_some(net::buffer(buffer_.data(), buffer_.size()), error);
      if (error == net::error::would_block || error == net::error::try_again) {
        read(user);
      } else {
        user->on_read(error, {buffer_.data(), size});
      }
    });
  }

  void write(std::shared_ptr<StreamUser> user, std::string_view bytes) override {
    socket_.async_write_some(
        net::buffer(bytes.data(), bytes.size()),
        [user = std::move(user)](error_code error, size_t size) { user->on_written(error, size); });
  }

  void end_writing(std::shared_ptr<StreamUser>) override {
    error_code ignored;
    socket_.shutdown(StreamSocket::shutdown_send, ignored);
  }

  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  StreamSocket socket_;
  const std::span<char> buffer_;
};

}  // namespace

std::unique_ptr<Transport> plain_transport(StreamSocket socket, std::span<char> buffer) {
  return std::make_unique<PlainTransport>(std::move(socket), buffer);
}

}  // namespace baton::http
