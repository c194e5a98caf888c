// A byte stream under a connection: a socket, with TLS or without. Of one thread, that of its I/O context.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace baton::http {

using StreamSocket = boost::asio::generic::stream_protocol::socket;
using boost::system::error_code;

// Who is told; on the thread of the I/O context, never from inside a call to the transport.
class StreamUser {
 public:
  virtual ~StreamUser() = default;
  virtual void on_open(error_code error) = 0;
  // `bytes`: until the call returns. Empty with an error (end of stream: the client closed its side).
  virtual void on_read(error_code error, std::string_view bytes) = 0;
  virtual void on_written(error_code error, size_t bytes) = 0;
};

// Each call keeps the user until it is told. One open, read and write each may be under way.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual void open(std::shared_ptr<StreamUser> user) = 0;
  virtual void read(std::shared_ptr<StreamUser> user) = 0;
  // Some of `bytes`, which must live until the user is told.
  virtual void write(std::shared_ptr<StreamUser> user, std::string_view bytes) = 0;
  // Nothing more will be written; what was is sent.
  virtual void end_writing(std::shared_ptr<StreamUser> user) = 0;
  virtual void close() = 0;
};

// It holds no buffer of its own: what comes is read into `buffer`, which all connections of a thread have in common and
// which lives longer. Thousands of idle connections cost no more than their sockets.
std::unique_ptr<Transport> plain_transport(StreamSocket socket, std::span<char> buffer);

}  // namespace baton::http
