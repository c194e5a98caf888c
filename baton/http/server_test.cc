// The server over real sockets: keep-alive, bodies, answers in pieces, limits and how it ends.
#include "baton/http/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "tests/support/http_client.h"

namespace baton::http {
namespace {

// Keeps what comes, for the test's own thread to answer.
class Inbox {
 public:
  Server::Handler handler() {
    return [this](std::shared_ptr<Exchange> exchange) {
      const std::lock_guard lock(mutex_);
      all_.push_back(std::move(exchange));
    };
  }
  std::shared_ptr<Exchange> next() {
    std::shared_ptr<Exchange> exchange;
    eventually([&] {
      const std::lock_guard lock(mutex_);
      if (all_.empty()) return false;
      exchange = std::move(all_.front());
      all_.erase(all_.begin());
      return true;
    });
    return exchange;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> all_;
};

TEST(Server, AnswersOnOneConnectionAgainAndAgain) {
  const auto server = test_server(echo);
  TestClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send("GET /a%20b/%C3%A4?x=1&y=a+b%26 HTTP/1.1\r\nHost: a\r\nX-Request-Id: id-7\r\n\r\n"));
    const std::string answer = client.read_answer();
    EXPECT_EQ(answer.find("HTTP/1.1 200 OK\r\n"), 0u) << answer;
    EXPECT_NE(answer.find("\r\nX-Request-Id: id-7\r\n"), answer.npos) << answer;
    EXPECT_NE(answer.find("\r\nConnection: keep-alive\r\n"), answer.npos) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\nGET /a b/\xC3\xA4 x=1 y=a b&|")) << answer;
  }
  EXPECT_EQ(server->counts().accepted, 1u);
  EXPECT_EQ(server->address(), "http://127.0.0.1:" + std::to_string(server->port()));
}

TEST(Server, ClosesWhenTheClientSaysSo) {
  const auto server = test_server(echo);
  for (const char* request :
       {"GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"}) {
    TestClient client(server->port());
    ASSERT_TRUE(client.send(request));
    const std::string answer = client.read_to_end();
    EXPECT_NE(answer.find("\r\nConnection: close\r\n"), answer.npos) << answer;
    EXPECT_TRUE(answer.ends_with("GET /|")) << answer;
    EXPECT_TRUE(client.closed());
  }
}

TEST(Server, ReadsBodiesByLengthAndInChunksHoweverTheyComeIn) {
  const auto server = test_server(echo);
  const std::string requests[] = {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world",
                                  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
                                  "5\r\nhello\r\n006;x=\"y\" ; z\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"};
  for (const std::string& request : requests) {
    TestClient whole(server->port()), pieces(server->port());
    ASSERT_TRUE(whole.send(request));
    EXPECT_TRUE(whole.read_answer().ends_with("POST /|hello world"));
    for (const char c : request) {
      ASSERT_TRUE(pieces.send(std::string_view(&c, 1)));
      std::this_thread::yield();
    }
    EXPECT_TRUE(pieces.read_answer().ends_with("POST /|hello world"));
    ASSERT_TRUE(pieces.send(kGet));
    EXPECT_TRUE(pieces.read_answer().ends_with("GET /|"));
  }
}

TEST(Server, SendsContinueToWhoWaitsForIt) {
  const auto server = test_server(echo);
  TestClient client(server->port());
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.send("ok"));
  EXPECT_TRUE(client.read_answer().ends_with("POST /|ok"));
  TestClient large(server->port());
  ASSERT_TRUE(large.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(large.read_to_end().find("HTTP/1.1 413 "), 0u);
}

TEST(Server, HeadHasTheHeadersAndNoBody) {
  const auto server = test_server(echo);
  TestClient client(server->port());
  ASSERT_TRUE(client.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n"));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 8\r\n"), head.npos) << head;
  ASSERT_TRUE(client.send("OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_TRUE(client.read_answer().ends_with("OPTIONS /x|"));
}

// What became of the requests whose notes these are.
class Ends {
 public:
  class EndNote final : public Note {
   public:
    explicit EndNote(Ends& ends) : ends_(ends) {}
    void ended(const Ended& ended) override { ends_.put(ended); }

   private:
    Ends& ends_;
  };
  void put(const Ended& ended) {
    const std::lock_guard lock(mutex_);
    all_.push_back(ended);
  }
  size_t count() const {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }
  Ended last() const {
    const std::lock_guard lock(mutex_);
    return all_.back();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Ended> all_;
};

TEST(Server, TellsTheNoteOfARequestHowItEnded) {
  Ends ends;
  Inbox inbox;
  const auto server = test_server(inbox.handler());
  {  // whole: told when it is sent and nobody holds it any more
    TestClient client(server->port());
    ASSERT_TRUE(client.send(kGet));
    auto exchange = inbox.next();
    ASSERT_TRUE(exchange);
    EXPECT_EQ(exchange->note(), nullptr);
    exchange->keep(std::make_unique<Ends::EndNote>(ends));
    EXPECT_NE(exchange->note(), nullptr);
    exchange->add_header("X-More", "1");
    exchange->respond({201, {}, "12345"});
    const std::string answer = client.read_answer();
    EXPECT_NE(answer.find("X-More: 1\r\n"), answer.npos) << answer;
    EXPECT_EQ(ends.count(), 0u);
    exchange.reset();
    ASSERT_TRUE(eventually([&] { return ends.count() == 1; }));
    EXPECT_EQ(ends.last().status, 201);
    EXPECT_TRUE(ends.last().whole);
    EXPECT_EQ(ends.last().bytes, answer.size());
  }
  {  // the client left in the middle of a stream
    auto client = std::make_unique<TestClient>(server->port());
    ASSERT_TRUE(client->send(kGet));
    auto exchange = inbox.next();
    ASSERT_TRUE(exchange);
    exchange->keep(std::make_unique<Ends::EndNote>(ends));
    exchange->add_header("X-More", "2");
    exchange->begin(200, {});
    EXPECT_NE(client->read_until("\r\n\r\n").find("X-More: 2\r\n"), std::string::npos);
    client.reset();
    ASSERT_TRUE(eventually([&] { return exchange->gone(); }));
    EXPECT_EQ(ends.count(), 1u);
    exchange.reset();
    ASSERT_TRUE(eventually([&] { return ends.count() == 2; }));
    EXPECT_EQ(ends.last().status, 200);
    EXPECT_FALSE(ends.last().whole);
  }
  {  // nobody answered
    TestClient client(server->port());
    ASSERT_TRUE(client.send(kGet));
    auto exchange = inbox.next();
    ASSERT_TRUE(exchange);
    exchange->keep(std::make_unique<Ends::EndNote>(ends));
    exchange.reset();
    ASSERT_TRUE(eventually([&] { return ends.count() == 3; }));
    EXPECT_EQ(ends.last().status, 0);
    EXPECT_FALSE(ends.last().whole);
  }
}

TEST(Server, TellsOfWhatItRefusedItself) {
  std::mutex mutex;
  std::vector<std::pair<Request, Ended>> refused;
  Options options;
  options.limits.body_bytes_max = 10;
  options.on_refused = [&](const Request& request, const Ended& ended) {
    const std::lock_guard lock(mutex);
    refused.emplace_back(request, ended);
  };
  const auto server = test_server(echo, options);
  for (const char* bad :
       {"GET  / HTTP/1.1\r\n\r\n",
        "POST /p HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n"}) {
    TestClient client(server->port());
    ASSERT_TRUE(client.send(bad));
    EXPECT_NE(client.read_to_end().find("\r\nX-Request-Id: "), std::string::npos);
  }
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return refused.size() == 2;
  }));
  EXPECT_EQ(refused[0].second.status, 400);
  EXPECT_FALSE(refused[0].first.id.empty());
  EXPECT_EQ(refused[1].second.status, 413);
  EXPECT_EQ(refused[1].first.id, "mine");
  EXPECT_EQ(refused[1].first.path, "/p");
  EXPECT_EQ(refused[1].first.method, "POST");
}

TEST(Server, SendsAnswersInPieces) {
  Inbox inbox;
  const auto server = test_server(inbox.handler());
  TestClient client(server->port());
  ASSERT_TRUE(client.send(kGet));
  const auto exchange = inbox.next();
  ASSERT_TRUE(exchange);
  ASSERT_TRUE(
      exchange->begin(200, {{"Content-Type", "text/event-stream"}, {"Bad", "a\r\nb: c"}, {"Content-Length", "1"}}));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), head.npos) << head;
  EXPECT_EQ(head.find("Content-Length"), head.npos) << head;
  EXPECT_NE(head.find("Bad: a  b: c\r\n"), head.npos) << head;
  EXPECT_TRUE(exchange->write("data: 1\n\n"));
  EXPECT_EQ(client.read_until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  EXPECT_TRUE(exchange->try_write("data: 2\n\n"));
  exchange->end();
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  ASSERT_TRUE(client.send(kGet));
  inbox.next()->respond({204, {}, "ignored"});
  const std::string none = client.read_until("\r\n\r\n");
  EXPECT_EQ(none.find("HTTP/1.1 204 No Content\r\n"), 0u) << none;
  EXPECT_EQ(none.find("Content-Length"), none.npos) << none;
}

TEST(Server, AnswersInPiecesToOldClientsEndWithTheConnection) {
  Inbox inbox;
  const auto server = test_server(inbox.handler());
  TestClient client(server->port());
  ASSERT_TRUE(client.send("GET / HTTP/1.0\r\n\r\n"));
  const auto exchange = inbox.next();
  ASSERT_TRUE(exchange && exchange->begin(200, {}) && exchange->write("abc"));
  exchange->end();
  EXPECT_TRUE(client.read_to_end().ends_with("\r\n\r\nabc"));
  EXPECT_TRUE(client.closed());
}

TEST(Server, AnExchangeThatNobodyAnswersClosesItsConnection) {
  Inbox inbox;
  const auto server = test_server(inbox.handler());
  TestClient none(server->port()), half(server->port());
  ASSERT_TRUE(none.send(kGet));
  inbox.next().reset();
  EXPECT_EQ(none.read_to_end(), "");
  EXPECT_TRUE(none.closed());
  ASSERT_TRUE(half.send(kGet));
  auto exchange = inbox.next();
  ASSERT_TRUE(exchange->begin(200, {}) && exchange->write("part"));
  exchange.reset();
  EXPECT_TRUE(half.read_to_end().ends_with("4\r\npart\r\n"));
  EXPECT_TRUE(half.closed());
  EXPECT_TRUE(eventually([&] { return server->counts().exchanges == 0; }));
}

TEST(Server, AClientThatLeavesIsNoticedWhileNothingIsSent) {
  Inbox inbox;
  const auto server = test_server(inbox.handler());
  TestClient client(server->port());
  ASSERT_TRUE(client.send(kGet));
  const auto exchange = inbox.next();
  std::promise<void> told;
  std::atomic<int> times{0};
  exchange->on_gone([&] {
    if (++times == 1) told.set_value();
  });
  EXPECT_FALSE(exchange->gone());
  client.close();
  EXPECT_EQ(told.get_future().wait_for(std::chrono::seconds(1)), std::future_status::ready);
  EXPECT_TRUE(exchange->gone());
  EXPECT_FALSE(exchange->begin(200, {}));
  EXPECT_FALSE(exchange->write("x"));
  exchange->end();
  bool at_once = false;
  exchange->on_gone([&] { at_once = true; });
  EXPECT_TRUE(at_once);
  EXPECT_EQ(times, 1);
  EXPECT_TRUE(eventually([&] { return server->counts().connections == 0; }));
}

TEST(Server, QuietAnswersAreKeptAlive) {
  Inbox inbox;
  const auto server = test_server(inbox.handler());
  TestClient client(server->port());
  ASSERT_TRUE(client.send(kGet));
  const auto exchange = inbox.next();
  const auto start = steady_clock::now();
  ASSERT_TRUE(exchange->begin(200, {}));
  exchange->keep_alive(": here\n\n", milliseconds(50));
  client.read_until("\r\n\r\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.read_until("\n\n\r\n"), "8\r\n: here\n\n\r\n");
  EXPECT_GE(steady_clock::now() - start, milliseconds(120));
  exchange->end();
  EXPECT_TRUE(client.read_until("0\r\n\r\n").ends_with("0\r\n\r\n"));
}

TEST(Server, PipeliningIsRefusedBehindTheFirstAnswer) {
  Inbox inbox;
  const auto server = test_server(inbox.handler());
  TestClient together(server->port()), later(server->port());
  ASSERT_TRUE(together.send(std::string(kGet) + std::string(kGet)));
  inbox.next()->respond({200, {}, "first"});
  std::string answers = together.read_to_end();
  EXPECT_NE(answers.find("\r\n\r\nfirstHTTP/1.1 400 Bad Request\r\n"), answers.npos) << answers;
  EXPECT_NE(answers.find("pipelining"), answers.npos) << answers;
  ASSERT_TRUE(later.send(kGet));
  const auto exchange = inbox.next();
  ASSERT_TRUE(exchange && later.send(kGet));
  std::this_thread::sleep_for(milliseconds(50));
  exchange->respond({200, {}, "first"});
  answers = later.read_to_end();
  EXPECT_NE(answers.find("Connection: close\r\n\r\nfirstHTTP/1.1 400 Bad Request\r\n"), answers.npos) << answers;
}

TEST(Server, DrainsAndCloses) {
  Inbox inbox;
  auto server = test_server(inbox.handler());
  TestClient open(server->port()), idle(server->port()), partly(server->port());
  ASSERT_TRUE(open.send(kGet));
  ASSERT_TRUE(partly.send("GET / HTTP/1.1\r\n"));
  auto exchange = inbox.next();
  ASSERT_TRUE(exchange && eventually([&] { return server->counts().connections == 3; }));
  std::this_thread::sleep_for(milliseconds(20));
  server->stop_accepting();
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_TRUE(idle.closed());
  ASSERT_TRUE(partly.send("Host: a\r\n\r\n"));
  EXPECT_EQ(partly.read_to_end().find("HTTP/1.1 503 "), 0u);
  EXPECT_TRUE(eventually([&] { return !TestClient(server->port()).connected(); }));
  EXPECT_FALSE(server->drain(milliseconds(20)));
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(30));
    exchange->respond({200, {}, "bye"});
  });
  EXPECT_TRUE(server->drain(milliseconds(5000)));
  later.join();
  const std::string answer = open.read_to_end();
  EXPECT_NE(answer.find("Connection: close\r\n\r\nbye"), answer.npos) << answer;
}

TEST(Server, AnExchangeMayOutliveTheServer) {
  Inbox inbox;
  auto server = test_server(inbox.handler());
  TestClient client(server->port());
  ASSERT_TRUE(client.send(kGet));
  const auto exchange = inbox.next();
  ASSERT_TRUE(exchange->begin(200, {}));
  server.reset();
  EXPECT_TRUE(exchange->gone());
  EXPECT_FALSE(exchange->write("x"));
  exchange->end();
  EXPECT_EQ(client.read_to_end().find("HTTP/1.1 200 OK"), 0u);
}

}  // namespace
}  // namespace baton::http
