// Listening sockets, by address. POSIX.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "baton/base/status.h"
#include "baton/http/server.h"

namespace baton::http {

struct Listening {
  int fd = -1;  // the caller's to close, in a Bound the Bound's
  int family = 0;
  uint16_t port = 0;
  std::string address;                // as Server::address, without TLS
  std::filesystem::path unix_socket;  // to be removed behind it
};

struct Bound {
  explicit Bound(Listening taken) : at(std::move(taken)) {}
  ~Bound();
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  Listening at;  // without a descriptor when it listens
};

// As Server::bind, without TLS.
Result<std::shared_ptr<Bound>> bind_to(const Options& options);
Result<Listening> listen_on(const Options& options);
// Whether it is an address or a name that has one.
Status check_host(const std::string& host);
// "127.0.0.1:54321", "[::1]:54321", "unix"; of the other side.
std::string peer_of(int fd);
// How many connections the process can hold: raises its soft limit of open files as far as it may.
uint32_t connections_possible(uint32_t wanted);

}  // namespace baton::http
