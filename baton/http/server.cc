// Listening, accepting, and the end of it.
#include "baton/http/server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <climits>
#include <exception>
#include <utility>

#include "baton/http/connection.h"
#include "baton/http/sockets.h"
#include "baton/http/tls.h"
#include "baton/http/worker.h"

namespace baton::http {
namespace {

namespace net = boost::asio;
using Acceptor = net::basic_socket_acceptor<net::generic::stream_protocol>;

constexpr uint32_t kToldOff = 64;          // connections above the limit that are told so; more are cut
constexpr int kAcceptsAtOnce = 64;         // then others have their turn
constexpr int kKernelUnsent = 128 * 1024;  // of one connection, so that a slow reader is noticed

void set(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); }

// Small pieces go out at once; a machine that is gone without a word is noticed, sooner when it owes us an
// acknowledgement.
void tune(int fd, int family, [[maybe_unused]] const Limits& limits) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
#if defined(SO_NOSIGPIPE)
  set(fd, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
  if (family == AF_UNIX) return;
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#if defined(TCP_KEEPIDLE)
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
#endif
#if defined(TCP_USER_TIMEOUT)
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min<int64_t>(limits.write_timeout.count(), INT_MAX)));
#endif
#if defined(TCP_NOTSENT_LOWAT)
  set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kKernelUnsent);
#endif
}

class AsioServer final : public Server {
 public:
  AsioServer(Listening listening, uint32_t connections_max, std::shared_ptr<Shared> shared,
             std::unique_ptr<TlsContext> tls, uint32_t threads)
      : listening_(std::move(listening)),
        connections_max_(connections_max),
        shared_(std::move(shared)),
        tls_(std::move(tls)) {
    for (uint32_t i = 0; i < threads; ++i) workers_.push_back(std::make_shared<Worker>(shared_));
    acceptor_ = std::make_unique<Acceptor>(workers_[0]->io);
    pause_ = std::make_unique<net::steady_timer>(workers_[0]->io);
    acceptor_->assign(net::generic::stream_protocol(listening_.family, 0), listening_.fd);
    accept();
    for (const auto& worker : workers_) worker->thread = std::thread([each = worker.get()] { each->run(); });
  }
  ~AsioServer() override { close(); }

  std::string address() const override { return tls_ ? "https" + listening_.address.substr(4) : listening_.address; }
  uint16_t port() const override { return listening_.port; }
  Counts counts() const override;
  void stop_accepting() override;
  bool drain(std::chrono::milliseconds timeout) override;
  void close() override;

 private:
  void accept();
  void accept_ready();
  void admit(int fd);
  void stop_listening();

  const Listening listening_;
  const uint32_t connections_max_;
  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<TlsContext> tls_;
  std::vector<std::shared_ptr<Worker>> workers_;
  std::unique_ptr<Acceptor> acceptor_;        // of the first worker's thread, as all that follows
  std::unique_ptr<net::steady_timer> pause_;  // after an accept for which there was no descriptor
  size_t next_worker_ = 0;
  std::mutex closing_;
  bool closed_ = false;
};

void AsioServer::accept() {
  acceptor_->async_wait(Acceptor::wait_read, [this](error_code error) {
    if (!error) accept_ready();
  });
}

void AsioServer::accept_ready() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    const int fd = ::accept(listening_.fd, nullptr, nullptr);
    if (fd >= 0) {
      try {
        admit(fd);
      } catch (const std::exception&) {  // no memory for one more: it is closed
        ++shared_->refused;
      }
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      pause_->expires_after(std::chrono::milliseconds(100));
      pause_->async_wait([this](error_code error) {
        if (!error && acceptor_->is_open()) accept();
      });
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      break;
    }
  }
  accept();
}

void AsioServer::admit(int fd) {
  ++shared_->accepted;
  const uint64_t open = shared_->connections;
  if (open >= uint64_t{connections_max_} + kToldOff) {
    ++shared_->refused;
    ::close(fd);
    return;
  }
  tune(fd, listening_.family, shared_->limits);
  Worker& worker = *workers_[next_worker_++ % workers_.size()];
  StreamSocket socket(worker.io);
  error_code error;
  socket.assign(net::generic::stream_protocol(listening_.family, 0), fd, error);
  if (error) {
    ::close(fd);
    return;
  }
  ++shared_->connections;
  auto transport = tls_ ? tls_->transport(std::move(socket)) : plain_transport(std::move(socket), worker.read_buffer);
  auto connection = std::make_shared<Connection>(worker, std::move(transport), peer_of(fd));
  net::post(worker.io, [&worker, connection = std::move(connection), refused = open >= connections_max_] {
    if (!worker.closed) connection->start(refused);
  });
}

Counts AsioServer::counts() const {
  Counts counts;
  counts.connections = shared_->connections;
  counts.accepted = shared_->accepted;
  counts.refused = shared_->refused;
  counts.bad_requests = shared_->bad_requests;
  const std::lock_guard lock(shared_->mutex);
  counts.exchanges = shared_->exchanges;
  return counts;
}

void AsioServer::stop_listening() {
  error_code ignored;
  if (!acceptor_->is_open()) return;
  acceptor_->close(ignored);
  pause_->cancel();
  if (!listening_.unix_socket.empty()) ::unlink(listening_.unix_socket.c_str());
}

void AsioServer::stop_accepting() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->stopping.exchange(true)) return;
  }
  net::post(workers_[0]->io, [this] { stop_listening(); });
  for (const auto& worker : workers_) {
    net::post(worker->io, [each = worker.get()] {
      const auto all = each->connections;
      for (const auto& connection : all) connection->stop();
    });
  }
}

bool AsioServer::drain(std::chrono::milliseconds timeout) {
  std::unique_lock lock(shared_->mutex);
  return shared_->fewer.wait_for(lock, timeout, [&] { return shared_->exchanges == 0; });
}

void AsioServer::close() {
  const std::lock_guard lock(closing_);
  if (std::exchange(closed_, true)) return;
  {
    const std::lock_guard stop(shared_->mutex);
    shared_->stopping = true;
  }
  net::post(workers_[0]->io, [this] { stop_listening(); });
  for (const auto& worker : workers_) {
    net::post(worker->io, [each = worker.get()] {
      each->closed = true;
      const auto all = each->connections;
      for (const auto& connection : all) connection->close();
      each->guard.reset();
    });
  }
  for (const auto& worker : workers_) worker->thread.join();
  shared_->on_refused = nullptr;
  shared_->handler = nullptr;  // and what it holds: exchanges may live on
  acceptor_.reset();
  pause_.reset();
}

// Null: without.
Result<std::unique_ptr<TlsContext>> open_tls(const Options& options) {
  if (options.tls_certificate.empty() && options.tls_key.empty()) return nullptr;
  if (options.tls_certificate.empty() || options.tls_key.empty())
    return fail(Code::kInvalidInput, "TLS needs both a certificate and its key");
  if (!options.unix_socket.empty()) return fail(Code::kInvalidInput, "a Unix socket has no TLS; give one of the two");
  return TlsContext::open(options.tls_certificate, options.tls_key);
}

}  // namespace

Status Server::check(const Options& options) {
  BATON_OK(open_tls(options));
  return options.unix_socket.empty() ? check_host(options.host) : Status();
}

Result<std::shared_ptr<Bound>> Server::bind(const Options& options) {
  BATON_OK(open_tls(options));
  return bind_to(options);
}

Result<std::unique_ptr<Server>> Server::open(const Options& options, Handler handler, ErrorBody error_body) {
  BATON_CHECK(handler && error_body && options.threads > 0);
  BATON_TRY(std::unique_ptr<TlsContext> tls, open_tls(options));
  BATON_TRY(Listening listening, listen_on(options));
  auto shared = std::make_shared<Shared>();
  shared->limits = options.limits;
  shared->handler = std::move(handler);
  shared->error_body = std::move(error_body);
  shared->on_refused = options.on_refused;
  if (::getentropy(&shared->id_seed, sizeof shared->id_seed) != 0) shared->id_seed = 0;
  return std::make_unique<AsioServer>(std::move(listening), connections_possible(options.limits.connections_max),
                                      std::move(shared), std::move(tls), options.threads);
}

}  // namespace baton::http
