// Requests through readers, queue and workers, to clients that read, do not read, or leave.
#include "baton/serve/service.h"

#include <gtest/gtest.h>

#include <atomic>

#include "baton/serve/fake_exchange.h"

namespace baton::serve {
namespace {

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override { open({.parallel = 1, .queue_max = 4, .readers = 1}); }
  void TearDown() override {
    service_.reset();
    pool_.reset();
  }
  void open(const ServiceOptions& options) {
    RuntimeOptions runtime;
    runtime.model = BATON_SOURCE_DIR "/models/dictionary-3m.Q8_0.gguf";
    runtime.units = {"cpu"};
    runtime.threads = 1;
    runtime.limits.requests_active_max = options.parallel;
    runtime.limits.tokens_max = 4096;
    auto opened = Runtime::open(runtime);
    ASSERT_TRUE(opened) << opened.error().message;
    pool_ = std::make_unique<ModelPool>();
    ModelSetup setup;
    setup.name = "m";
    setup.prepare = [](Request& request) {
      request.decode_unit = request.prefill_unit = "cpu";
      request.max_new_tokens = 8;
    };
    pool_->add(std::make_unique<ServedModel>(std::move(setup), *std::move(opened)));
    auto service = Service::create(options, *pool_);
    ASSERT_TRUE(service) << service.error().message;
    service_ = *std::move(service);
  }
  std::shared_ptr<FakeExchange> ask(Json more = Json::object()) {
    Json body = {{"messages", {{{"role", "user"}, {"content", "What is a fern?"}}}}};
    body.update(more);
    auto exchange = std::make_shared<FakeExchange>("/v1/chat/completions", body);
    service_->take(openai_chat(), exchange, {});
    return exchange;
  }
  // One that runs until it is told to end.
  std::shared_ptr<FakeExchange> ask_long() {
    auto exchange = ask({{"stream", true}, {"max_tokens", 3900}, {"ignore_eos", true}});
    EXPECT_TRUE(comes([&] { return exchange->response().body.size() > 100; }));
    return exchange;
  }
  bool idle() {
    bool none = service_->counts().running == 0;
    pool_->visit([&](const PooledModel&, const ServedModel& served) {
      none = none && served.usage().requests == 0 && served.usage().state_bytes == 0;
    });
    return none;
  }

  std::unique_ptr<ModelPool> pool_;
  std::unique_ptr<Service> service_;
};

TEST_F(ServiceTest, StreamedAndWholeAreTheSame) {
  const auto whole = ask(), streamed = ask({{"stream", true}});
  ASSERT_TRUE(comes([&] { return whole->ended() && streamed->ended(); }));
  const Json body = Json::parse(whole->response().body);
  EXPECT_EQ(whole->response().status, 200);
  std::string text;
  const std::string events = streamed->response().body;
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n"));
  for (size_t at = 0; (at = events.find("data: {", at)) != std::string::npos; ++at) {
    const Json event = Json::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6));
    text += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(body["choices"][0]["message"]["content"], text);
  EXPECT_FALSE(text.empty());
}

TEST_F(ServiceTest, AClientThatLeavesFreesItsSequence) {
  const auto exchange = ask_long();
  exchange->leave();
  EXPECT_TRUE(comes([&] { return idle(); }));
}

TEST_F(ServiceTest, AClientThatDoesNotReadHoldsNoWorker) {
  const auto slow = ask({{"stream", true}});
  slow->read(false);
  const auto other = ask();
  EXPECT_TRUE(comes([&] { return other->ended(); }));
  EXPECT_EQ(other->response().status, 200);
  EXPECT_FALSE(slow->ended());
  slow->read(true);
  EXPECT_TRUE(comes([&] { return slow->ended(); }));
  EXPECT_TRUE(slow->response().body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServiceTest, WhatWaitsIsBoundedAndMayLeave) {
  const auto runs = ask_long();
  std::vector<std::shared_ptr<FakeExchange>> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(ask({{"stream", true}}));
  ASSERT_TRUE(comes([&] { return service_->counts().waiting == 4; }));
  // Its client is held by comments.
  EXPECT_TRUE(waiting[0]->begun());
  std::vector<std::shared_ptr<FakeExchange>> more;
  for (int i = 0; i < 3; ++i) more.push_back(ask());
  EXPECT_TRUE(comes([&] { return more.back()->ended(); }));
  EXPECT_EQ(more.back()->response().status, 429);
  EXPECT_EQ(more.back()->response().headers.back().first, "retry-after");
  // A stream is refused as anything else is, and not told 200 first.
  for (int i = 0; i < 3; ++i) {
    // Not at the door, where those that are being read count.
    EXPECT_TRUE(comes([&] { return service_->counts().reading == 0; }));
    const auto stream = ask({{"stream", true}});
    EXPECT_TRUE(comes([&] { return stream->ended(); }));
    EXPECT_EQ(stream->response().status, 429);
    EXPECT_FALSE(stream->begun());
  }
  EXPECT_TRUE(comes([&] { return service_->counts().waiting == 4; }));
  waiting[0]->leave();
  EXPECT_TRUE(comes([&] { return service_->counts().waiting == 3; }));
  runs->leave();
  EXPECT_TRUE(comes([&] { return waiting[3]->ended(); }));
  EXPECT_TRUE(waiting[3]->response().body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServiceTest, WhatIsWrongDoesNotWait) {
  const auto runs = ask_long();
  const auto waits = ask();
  const auto wrong = ask({{"temperature", -1}});
  EXPECT_TRUE(comes([&] { return wrong->ended(); }));
  EXPECT_EQ(wrong->response().status, 400);
  EXPECT_FALSE(waits->ended());
  const auto unknown = ask({{"model", "other"}});
  EXPECT_TRUE(comes([&] { return unknown->ended(); }));
  EXPECT_EQ(unknown->response().status, 404);
  runs->leave();
}

// However many, and however long they take.
TEST_F(ServiceTest, LongBodiesDelayOnlyEachOther) {
  std::atomic<bool> let{false};
  std::atomic<int> done{0};
  const auto hold = [&] {
    while (!let) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++done;
  };
  int taken = 0;
  while (taken < 1000 && service_->post(1 << 20, hold)) ++taken;
  EXPECT_GT(taken, 8);
  EXPECT_LT(taken, 100) << "they are bounded";
  const auto small = ask();
  EXPECT_TRUE(comes([&] { return small->ended(); }));
  EXPECT_EQ(small->response().status, 200);
  EXPECT_EQ(done, 0);
  let = true;
  EXPECT_TRUE(comes([&] { return done == taken; }));
}

TEST_F(ServiceTest, Drain) {
  const auto runs = ask_long();
  const auto waits = ask(), streams = ask({{"stream", true}});
  ASSERT_TRUE(comes([&] { return service_->counts().waiting == 2; }));
  service_->stop();
  EXPECT_FALSE(service_->ready());
  EXPECT_TRUE(comes([&] { return waits->ended() && streams->ended(); }));
  EXPECT_EQ(waits->response().status, 503);
  EXPECT_EQ(streams->response().status, 200);
  EXPECT_NE(streams->response().body.find("\"error\""), std::string::npos);
  EXPECT_EQ(streams->response().body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(ask()->response().status, 503);
  EXPECT_FALSE(runs->ended());
  EXPECT_FALSE(service_->drain(std::chrono::milliseconds(50)));
  EXPECT_TRUE(comes([&] { return runs->ended(); }));
  EXPECT_NE(runs->response().body.find("\"error\""), std::string::npos);
  EXPECT_TRUE(comes([&] { return idle(); }));
}

TEST_F(ServiceTest, ChoicesShareOnePrompt) {
  const auto exchange = ask({{"n", 3}, {"temperature", 2}, {"seed", 5}, {"top_k", 0}});
  ASSERT_TRUE(comes([&] { return exchange->ended(); }));
  const Json body = Json::parse(exchange->response().body);
  ASSERT_EQ(body["choices"].size(), 3u);
  EXPECT_EQ(body["usage"]["completion_tokens"].get<uint64_t>() > 3, true);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(body["choices"][i]["index"], i);
}

}  // namespace
}  // namespace baton::serve
