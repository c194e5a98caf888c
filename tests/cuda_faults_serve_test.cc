// A server whose card is lost: who needs it is told why, others are answered, and the model opened again has the card
// again.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <atomic>

#include "baton/serve/fake_exchange.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "tests/support/card_memory.h"

namespace baton::serve {
namespace {

constexpr const char* kCard = "cuda";
constexpr const char* kReason = "CUDA_ERROR_ILLEGAL_ADDRESS";

class CudaFaultsServe : public testing::Test {
 protected:
  void SetUp() override {
    cuda::emulated_reset();
    open();
  }
  void TearDown() override {
    close();
    cuda::emulated_reset();
  }
  void open() {
    RuntimeOptions runtime;
    runtime.model = BATON_SOURCE_DIR "/models/dictionary-3m.Q8_0.gguf";
    runtime.units = {"cpu", "cuda:driver=emulated"};
    runtime.threads = 1;
    runtime.limits.tokens_max = 256;
    auto opened = Runtime::open(runtime);
    ASSERT_TRUE(opened) << opened.error().message;
    pool_ = std::make_unique<ModelPool>();
    ModelSetup setup;
    setup.name = "m";
    setup.dispatch = dispatch_;
    setup.on_lost = [this](const LostUnit& unit) { told_ += unit.name + ": " + unit.why + "\n"; };
    setup.prepare = [this](Request& request) {
      request.prefill_unit = prefill_;
      request.decode_unit = decode_;
      request.max_new_tokens = 6;
    };
    auto served = std::make_unique<ServedModel>(std::move(setup), *std::move(opened));
    if (dispatch_) {
      ASSERT_TRUE(served->measure());
    }
    pool_->add(std::move(served));
    auto service = Service::create({.parallel = 4, .queue_max = 4, .readers = 1}, *pool_);
    ASSERT_TRUE(service) << service.error().message;
    service_ = *std::move(service);
  }
  void close() {
    EXPECT_TRUE(comes([&] {
      bool none = service_->counts().running == 0;
      pool_->visit([&](const PooledModel&, const ServedModel& served) {
        const EngineUsage usage = served.usage();
        none = none && usage.requests == 0 && usage.states == 0 && usage.state_bytes == 0;
      });
      return none;
    }));
    service_.reset();
    pool_.reset();
    EXPECT_TRUE(cuda::emulated_use() == cuda::EmulatedUse()) << cuda::emulated_use().device_bytes;
    EXPECT_EQ(cuda::emulated_misuse(), "");
  }
  std::shared_ptr<FakeExchange> ask(const char* prefill, const char* decode, bool stream = false) {
    prefill_ = prefill;
    decode_ = decode;
    const Json body = {{"messages", {{{"role", "user"}, {"content", "What is a fern?"}}}}, {"stream", stream}};
    auto exchange = std::make_shared<FakeExchange>("/v1/chat/completions", body);
    service_->take(openai_chat(), exchange, {});
    return exchange;
  }
  http::Response answer(const char* prefill, const char* decode, bool stream = false) {
    const auto exchange = ask(prefill, decode, stream);
    EXPECT_TRUE(comes([&] { return exchange->ended(); }));
    return exchange->response();
  }

  std::atomic<const char*> prefill_{"cpu"}, decode_{"cpu"};
  bool dispatch_ = false;
  std::string told_;  // of lost units
  std::unique_ptr<ModelPool> pool_;
  std::unique_ptr<Service> service_;
};

TEST_F(CudaFaultsServe, ALostCardIsSaidToThoseWhoNeedIt) {
  const http::Response wanted = answer("cpu", "cpu");
  ASSERT_EQ(wanted.status, 200) << wanted.body;
  ASSERT_EQ(answer(kCard, kCard).status, 200);
  cuda::emulated_fail({.function = "event_wait", .nth = 3, .code = cuda::kIllegalAddress, .lost = true});
  // Whatever came before it is said in a stream that has begun.
  const http::Response streamed = answer(kCard, kCard, true);
  EXPECT_NE(streamed.body.find("\"error\""), std::string::npos) << streamed.body;
  EXPECT_NE(streamed.body.find(kReason), std::string::npos) << streamed.body;
  for (const char* decode : {kCard, "cpu"}) {
    const http::Response refused = answer(kCard, decode);
    EXPECT_EQ(refused.status, 503) << refused.body;
    EXPECT_NE(refused.body.find(kReason), std::string::npos) << refused.body;
    EXPECT_NE(refused.body.find("'cuda'"), std::string::npos) << refused.body;
  }
  const std::vector<Service::Lost> lost = service_->lost_units();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].unit, "cuda");
  EXPECT_NE(lost[0].why.find(kReason), std::string::npos) << lost[0].why;
  EXPECT_FALSE(lost[0].refuses) << "what asks for no unit is answered by cpu";
  EXPECT_EQ(told_, "cuda: " + lost[0].why + "\n") << "once";
  const http::Response other = answer("cpu", "cpu");
  EXPECT_EQ(other.status, 200) << other.body;
  EXPECT_EQ(Json::parse(other.body)["choices"], Json::parse(wanted.body)["choices"]);
  close();
  cuda::emulated_reset();
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(answer(kCard, kCard).status, 200);
}

// All that ask for no unit are refused then: the server is not ready, and says why.
TEST_F(CudaFaultsServe, AServerWhoseOwnCardIsLostIsNotReady) {
  close();
  prefill_ = decode_ = kCard;
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_TRUE(service_->lost_units().empty());
  cuda::emulated_fail({.function = "event_wait", .nth = 3, .code = cuda::kIllegalAddress, .lost = true});
  EXPECT_NE(answer(kCard, kCard).status, 200);
  const std::vector<Service::Lost> lost = service_->lost_units();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_TRUE(lost[0].refuses);
  EXPECT_EQ(lost[0].model, "m");
}

TEST_F(CudaFaultsServe, DispatchLeavesALostCard) {
  close();
  dispatch_ = true;
  ASSERT_NO_FATAL_FAILURE(open());
  const auto lost_of = [&] {
    std::string text;
    pool_->visit([&](const PooledModel&, const ServedModel& served) {
      for (const RouteUnit& unit : served.route_facts(8, 0, 8).units) text += unit.lost;
    });
    return text;
  };
  EXPECT_EQ(answer("cpu", "cpu").status, 200);
  EXPECT_EQ(lost_of(), "");
  // By whichever request works on the card first; the server's default is the processor's.
  cuda::emulated_fail({.function = "stream_wait", .code = cuda::kIllegalAddress, .lost = true});
  for (int i = 0; i < 20 && lost_of().empty(); ++i) {
    pool_->visit([&](const PooledModel&, const ServedModel& served) {
      auto& model = const_cast<ServedModel&>(served);
      CompletionRequest request = model.make_request({1, 2, 3, 4});
      request.request.prefill_unit = request.request.decode_unit = kCard;
      if (auto started = model.start(std::move(request))) {
        for (auto next = started->next(std::chrono::milliseconds(100), {}); next && !*next;)
          next = started->next(std::chrono::milliseconds(100), {});
      }
    });
  }
  EXPECT_NE(lost_of().find(kReason), std::string::npos);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(answer("cpu", "cpu").status, 200);
  ASSERT_EQ(service_->lost_units().size(), 1u);
  EXPECT_FALSE(service_->lost_units()[0].refuses);
}

TEST_F(CudaFaultsServe, AHandOverFromALostCardIsAnswered) {
  const http::Response wanted = answer("cpu", "cpu");
  cuda::emulated_fail({.function = "copy_rows", .code = cuda::kIllegalAddress, .lost = true});
  const http::Response got = answer(kCard, "cpu");
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(Json::parse(got.body)["choices"], Json::parse(wanted.body)["choices"]);
  EXPECT_EQ(answer(kCard, kCard).status, 503);
}

}  // namespace
}  // namespace baton::serve
