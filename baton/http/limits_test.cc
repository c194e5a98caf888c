// The bounds of a server: time, bytes and connections; and thousands of clients that are only there.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "baton/base/temporary_folder.h"
#include "baton/http/server.h"
#include "baton/http/sockets.h"
#include "tests/support/http_client.h"
#include "tests/support/smoke.h"

namespace baton::http {
namespace {

Options limited(const std::function<void(Limits&)>& set) {
  Options options;
  set(options.limits);
  return options;
}

TEST(Limits, WhoIsSlowWithTheHeadIsToldAndClosed) {
  const auto server = test_server(echo, limited([](Limits& limits) { limits.header_timeout = milliseconds(150); }));
  TestClient silent(server->port()), partly(server->port()), dripping(server->port());
  ASSERT_TRUE(partly.send("GET / HT"));
  std::thread drip([&] {
    for (const char c : std::string_view("GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")) {
      if (!dripping.send(std::string_view(&c, 1))) return;
      std::this_thread::sleep_for(milliseconds(10));
    }
  });
  EXPECT_EQ(silent.read_to_end(), "");
  EXPECT_TRUE(silent.closed());
  EXPECT_EQ(partly.read_to_end().find("HTTP/1.1 408 "), 0u);
  const std::string answer = dripping.read_to_end();
  EXPECT_EQ(answer.find("HTTP/1.1 408 "), 0u) << answer;
  EXPECT_NE(answer.find("head of the request did not come in time"), answer.npos) << answer;
  drip.join();
}

TEST(Limits, WhoIsSlowWithTheBodyIsToldAndClosed) {
  const auto server = test_server(echo, limited([](Limits& limits) { limits.body_timeout = milliseconds(100); }));
  TestClient client(server->port());
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello"));
  const std::string answer = client.read_to_end();
  EXPECT_EQ(answer.find("HTTP/1.1 408 "), 0u) << answer;
  EXPECT_NE(answer.find("body did not come in time"), answer.npos) << answer;
}

TEST(Limits, IdleConnectionsAreClosed) {
  const auto server = test_server(echo, limited([](Limits& limits) { limits.idle_timeout = milliseconds(100); }));
  TestClient client(server->port());
  ASSERT_TRUE(client.send(kGet));
  EXPECT_TRUE(client.read_answer().ends_with("GET /|"));
  EXPECT_EQ(client.read_to_end(), "");
  EXPECT_TRUE(client.closed());
}

TEST(Limits, BodiesAreRefusedBeforeAllOfThemCame) {
  const auto server = test_server(echo, limited([](Limits& limits) { limits.body_bytes_max = 1000; }));
  TestClient fits(server->port()), sends(server->port());
  ASSERT_TRUE(fits.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x')));
  EXPECT_TRUE(fits.read_answer().ends_with(std::string(1000, 'x')));
  // The answer is there to be read although more was sent than anybody wanted.
  EXPECT_TRUE(
      sends.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + std::string(3'000'000, 'x')));
  EXPECT_EQ(sends.read_to_end().find("HTTP/1.1 413 "), 0u);
  EXPECT_FALSE(sends.was_reset());
}

// A reset would end the sending of a client that sends before it reads, and it would not come to the answer. The end of
// the answer is awaited first: a server that closed for it has done so, and answers the rest with a reset.
TEST(Limits, WhoIsRefusedMaySendTheRest) {
  const auto server = test_server(echo, limited([](Limits& limits) { limits.body_bytes_max = 1000; }));
  TestClient sends(server->port());
  ASSERT_TRUE(sends.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001000\r\n\r\n" + std::string(1000, 'x')));
  const std::string answer = sends.read_to_end();
  EXPECT_EQ(answer.find("HTTP/1.1 413 "), 0u) << answer;
  EXPECT_TRUE(sends.closed() && !sends.was_reset());
  for (int piece = 0; piece < 10; ++piece) {
    ASSERT_TRUE(sends.send(std::string(100'000, 'x'))) << piece;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

TEST(Limits, AllBodiesTogetherAreBounded) {
  std::mutex mutex;
  std::vector<std::shared_ptr<Exchange>> held;
  const auto keep = [&](std::shared_ptr<Exchange> exchange) {
    const std::lock_guard lock(mutex);
    held.push_back(std::move(exchange));
  };
  const auto server = test_server(keep, limited([](Limits& limits) { limits.bodies_bytes_max = 1500; }));
  const std::string request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x');
  TestClient first(server->port()), second(server->port()), third(server->port());
  ASSERT_TRUE(first.send(request));
  ASSERT_TRUE(eventually([&] { return server->counts().exchanges == 1; }));
  ASSERT_TRUE(second.send(request));
  const std::string answer = second.read_to_end();
  EXPECT_EQ(answer.find("HTTP/1.1 503 "), 0u) << answer;
  EXPECT_NE(answer.find("Retry-After: "), answer.npos) << answer;
  {
    const std::lock_guard lock(mutex);
    held.clear();
  }
  ASSERT_TRUE(eventually([&] { return server->counts().exchanges == 0; }));
  ASSERT_TRUE(third.send(request));
  EXPECT_TRUE(eventually([&] { return server->counts().exchanges == 1; }));
  const std::lock_guard lock(mutex);
  held.clear();
}

TEST(Limits, OneConnectionMoreIsToldSo) {
  const auto server = test_server(echo, limited([](Limits& limits) { limits.connections_max = 2; }));
  TestClient first(server->port());
  {
    TestClient second(server->port());
    for (TestClient* each : {&first, &second}) {
      ASSERT_TRUE(each->send(kGet));
      EXPECT_TRUE(each->read_answer().ends_with("GET /|"));
    }
    TestClient third(server->port());
    third.send(kGet);
    const std::string answer = third.read_to_end();
    EXPECT_EQ(answer.find("HTTP/1.1 503 "), 0u) << answer;
    EXPECT_NE(answer.find("Retry-After: 1\r\n"), answer.npos) << answer;
    EXPECT_TRUE(third.closed());
    EXPECT_EQ(server->counts().refused, 1u);
    EXPECT_EQ(server->counts().bad_requests, 0u);
  }
  EXPECT_TRUE(eventually([&] { return server->counts().connections == 1; }));
  TestClient again(server->port());
  ASSERT_TRUE(again.send(kGet));
  EXPECT_TRUE(again.read_answer().ends_with("GET /|"));
}

// One thread of I/O: were it to wait for the slow one, nobody would be answered.
TEST(Limits, ASlowReaderIsEndedAndBlocksNobody) {
  std::atomic<int> wrote{0};
  std::atomic<bool> ended{false};
  std::thread writer;
  const auto handler = [&](std::shared_ptr<Exchange> exchange) {
    if (exchange->request().path != "/slow") return echo(exchange);
    writer = std::thread([&, exchange = std::move(exchange)] {
      const std::string piece(16'000, 'x');
      if (!exchange->begin(200, {})) return;
      while (exchange->write(piece) && wrote < 10'000) ++wrote;
      EXPECT_FALSE(exchange->try_write("x"));
      ended = exchange->gone();
    });
  };
  Options options = limited([](Limits& limits) {
    limits.write_timeout = milliseconds(400);
    limits.unsent_bytes_max = 64 * 1024;
  });
  options.threads = 1;
  const auto server = test_server(handler, options);
  TestClient slow(server->port(), 4096), quick(server->port());
  ASSERT_TRUE(slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"));
  ASSERT_TRUE(eventually([&] { return wrote > 2; }));
  const auto start = steady_clock::now();
  int answers = 0;
  for (; !ended && steady_clock::now() - start < std::chrono::seconds(10); ++answers) {
    const auto asked = steady_clock::now();
    ASSERT_TRUE(quick.send(kGet));
    ASSERT_TRUE(quick.read_answer().ends_with("GET /|"));
    EXPECT_LT(steady_clock::now() - asked, milliseconds(300));
    std::this_thread::sleep_for(milliseconds(5));
  }
  writer.join();
  EXPECT_TRUE(ended);
  EXPECT_GE(steady_clock::now() - start, milliseconds(300));
  EXPECT_GT(answers, 5);
  EXPECT_LT(wrote * 16'000, 4'000'000) << "back-pressure holds the writer";
  EXPECT_TRUE(eventually([&] { return server->counts().exchanges == 0; }));
}

// Where no timer of the system's helps.
TEST(Limits, ASlowReaderOfAUnixSocketIsEnded) {
  const auto folder = TemporaryFolder::create("baton-http-test");
  ASSERT_TRUE(folder);
  Options options = limited([](Limits& limits) { limits.write_timeout = milliseconds(200); });
  options.unix_socket = folder->path() / "http.sock";
  std::thread writer;
  std::atomic<bool> gone{false};
  const auto handler = [&](std::shared_ptr<Exchange> exchange) {
    writer = std::thread([&, exchange = std::move(exchange)] {
      if (!exchange->begin(200, {})) return;
      for (int i = 0; i < 10'000 && exchange->write(std::string(16'000, 'x'));) ++i;
      gone = exchange->gone();
    });
  };
  const auto server = test_server(handler, options);
  TestClient slow(options.unix_socket.string());
  ASSERT_TRUE(slow.send(kGet));
  EXPECT_TRUE(eventually([&] { return gone.load(); }));
  slow.close();
  writer.join();
}

TEST(Limits, AReaderThatReadsIsPausedAndGetsEverything) {
  std::thread writer;
  const auto handler = [&](std::shared_ptr<Exchange> exchange) {
    writer = std::thread([exchange = std::move(exchange)] {
      ASSERT_TRUE(exchange->begin(200, {}));
      for (int i = 0; i < 200; ++i) ASSERT_TRUE(exchange->write(std::string(10'000, static_cast<char>('A' + i % 26))));
      exchange->end();
    });
  };
  const auto server = test_server(handler, limited([](Limits& limits) { limits.unsent_bytes_max = 20'000; }));
  TestClient client(server->port(), 4096);
  ASSERT_TRUE(client.send(kGet));
  std::this_thread::sleep_for(milliseconds(100));
  const std::string answer = client.read_until("0\r\n\r\n", std::chrono::seconds(20));
  EXPECT_EQ(std::count(answer.begin(), answer.end(), 'Z'), 70'000);
  EXPECT_TRUE(answer.ends_with("0\r\n\r\n"));
  writer.join();
}

TEST(Sockets, AUnixSocketReplacesOneThatNobodyListensOn) {
  const auto folder = TemporaryFolder::create("baton-http-test");
  ASSERT_TRUE(folder);
  Options options;
  options.unix_socket = folder->path() / "http.sock";
  const std::string path = options.unix_socket.string();
  {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);  // as after a kill: bound, and gone
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
  }
  ASSERT_FALSE(TestClient(path).connected());
  {
    const auto server = test_server(
        [](const std::shared_ptr<Exchange>& exchange) {
          exchange->respond({200, {}, exchange->request().remote});
        },
        options);
    ASSERT_TRUE(server);
    EXPECT_EQ(server->address(), "unix:" + path);
    TestClient client(path);
    ASSERT_TRUE(client.send(kGet));
    EXPECT_TRUE(client.read_answer().ends_with("\r\n\r\nunix"));
    const auto second = Server::open(options, echo, test_error);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::kUnavailable);
    EXPECT_NE(second.error().message.find(path), std::string::npos) << second.error().message;
  }
  struct stat status {};
  EXPECT_NE(::lstat(path.c_str(), &status), 0) << "removed with its server";
  options.unix_socket = folder->path();
  const auto no_socket = Server::open(options, echo, test_error);
  ASSERT_FALSE(no_socket);
  EXPECT_EQ(no_socket.error().code, Code::kInvalidInput);
  options.unix_socket = folder->path() / std::string(200, 'x');
  EXPECT_FALSE(Server::open(options, echo, test_error));
}

TEST(Sockets, AnAddressThatIsTakenIsNamed) {
  const auto server = test_server(echo);
  Options options;
  options.port = server->port();
  const auto second = Server::open(options, echo, test_error);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string(options.port)), std::string::npos);
  options.host = "no such host";
  EXPECT_EQ(Server::open(options, echo, test_error).error().code, Code::kInvalidInput);
}

TEST(Sockets, AnAddressIsTakenBeforeAnybodyListens) {
  Options options;
  options.port = 0;
  auto bound = Server::bind(options);
  ASSERT_TRUE(bound && *bound);
  options.port = (*bound)->at.port;
  EXPECT_FALSE(TestClient(options.port).connected()) << "nobody is answered before the server is open";
  const int fd = (*bound)->at.fd;
  bound->reset();
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1) << "given back by who only took it";
  bound = Server::bind(options);
  ASSERT_TRUE(bound);
  options.bound = *std::move(bound);
  {
    const auto server = Server::open(options, echo, test_error);
    ASSERT_TRUE(server) << server.error().message;
    EXPECT_EQ((*server)->port(), options.port);
    EXPECT_TRUE(TestClient(options.port).connected());
    options.bound = nullptr;
    const auto second = Server::bind(options);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::kUnavailable);
    EXPECT_NE(second.error().message.find("choose another port"), std::string::npos) << second.error().message;
  }
  EXPECT_TRUE(Server::open(options, echo, test_error)) << "given back with the server";
}

TEST(Sockets, OfTwoThatTookAnAddressOneListens) {
  Options options;
  options.port = 0;
  options.bound = *Server::bind(options);
  options.port = options.bound->at.port;
  Options other = options;
  auto bound = Server::bind(other);
  if (!bound) return;  // systems differ: here not even two can take it
  other.bound = *std::move(bound);
  const auto server = Server::open(options, echo, test_error);
  ASSERT_TRUE(server) << server.error().message;
  const auto second = Server::open(other, echo, test_error);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("choose another port"), std::string::npos) << second.error().message;
}

TEST(Sockets, APathIsLookedAtBeforeAnybodyListens) {
  const auto folder = TemporaryFolder::create("baton-http-test");
  ASSERT_TRUE(folder);
  Options options;
  options.unix_socket = folder->path() / "http.sock";
  const auto free = Server::bind(options);
  ASSERT_TRUE(free);
  EXPECT_FALSE(*free);
  const auto server = test_server(echo, options);
  ASSERT_TRUE(server);
  EXPECT_FALSE(Server::bind(options)) << "somebody listens there";
  options.unix_socket = folder->path();
  EXPECT_FALSE(Server::bind(options)) << "no socket";
  options.unix_socket = folder->path() / "none" / "http.sock";
  const auto lost = Server::bind(options);
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message.find("its folder: No such file"), std::string::npos) << lost.error().message;
}

TEST(Limits, ThousandsAreHeldThatAreOnlyThere) {
  const size_t count = static_cast<size_t>(scaled(2000, 200));
  std::mutex mutex;
  std::vector<std::shared_ptr<Exchange>> open;
  const auto handler = [&](std::shared_ptr<Exchange> exchange) {
    exchange->begin(200, {{"Content-Type", "text/event-stream"}});
    exchange->keep_alive(": here\n\n", std::chrono::seconds(15));
    const std::lock_guard lock(mutex);
    open.push_back(std::move(exchange));
  };
  const auto server = test_server(handler);
  std::vector<TestClient> clients;
  for (size_t i = 0; i < count; ++i) {
    clients.emplace_back(server->port());
    ASSERT_TRUE(clients.back().connected() && clients.back().send(kGet)) << i;
  }
  ASSERT_TRUE(eventually([&] { return server->counts().exchanges == count; }, std::chrono::seconds(20)));
  for (TestClient& client : clients) ASSERT_EQ(client.read_until("\r\n\r\n").find("HTTP/1.1 200"), 0u);
  {
    const std::lock_guard lock(mutex);
    for (const auto& exchange : open) ASSERT_TRUE(exchange->write("data: 1\n\n"));
  }
  for (TestClient& client : clients) ASSERT_EQ(client.read_until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  clients.clear();
  EXPECT_TRUE(eventually([&] { return server->counts().connections == 0; }));
  const std::lock_guard lock(mutex);
  for (const auto& exchange : open) EXPECT_TRUE(exchange->gone());
}

}  // namespace
}  // namespace baton::http
