// A service of two models of which only one fits: they take turns, and no answer shows it.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>

#include "baton/base/temporary_folder.h"
#include "baton/serve/fake_exchange.h"

namespace baton::serve {
namespace {

constexpr const char* kSmall = BATON_SOURCE_DIR "/models/dictionary-3m.Q8_0.gguf";
constexpr const char* kLarge = BATON_SOURCE_DIR "/models/dictionary-28m.Q8_0.gguf";

class ServiceModelsTest : public testing::Test {
 protected:
  struct Asked {
    std::string model;
    Json more = Json::object();
  };

  void TearDown() override {
    service_.reset();
    if (pool_) pool_->close(false);
  }

  void add(const std::string& name, const std::string& path, std::chrono::milliseconds keep_alive) {
    auto text = load_text_model(kSmall);
    ASSERT_TRUE(text) << text.error().message;
    ModelSource source{.facts = facts_of(*text, 2048), .keep_alive = keep_alive, .open = {}};
    source.facts.name = name;
    source.facts.aliases = {name + "-too"};
    source.facts.weight_bytes = 10;
    source.open = [this, name, path]() -> Result<std::unique_ptr<Served>> {
      ++opens_;
      while (blocked_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      RuntimeOptions options;
      options.model = path;
      options.units = {"cpu"};
      options.threads = 1;
      options.limits.tokens_max = 2048;
      options.limits.requests_active_max = 4;
      options.limits.checkpoint_bytes_max = uint64_t{64} << 20;
      options.state_cache = cache_.empty() ? "" : cache_ / name;
      options.state_cache_bytes = uint64_t{256} << 20;
      BATON_TRY(auto runtime, Runtime::open(options));
      ModelSetup setup;
      setup.name = name;
      setup.prepare = [](Request& request) {
        request.decode_unit = request.prefill_unit = "cpu";
        request.max_new_tokens = 6;
      };
      return std::make_unique<ServedModel>(std::move(setup), std::move(runtime));
    };
    pool_->add(std::move(source));
  }
  void open(uint64_t budget, std::chrono::milliseconds keep_alive = std::chrono::milliseconds(-1)) {
    pool_ = std::make_unique<ModelPool>(
        PoolOptions{.budget = budget, .turn = std::chrono::milliseconds(50), .slow = std::chrono::milliseconds(50)});
    add("small", kSmall, keep_alive);
    add("large", kLarge, keep_alive);
    add("broken", BATON_SOURCE_DIR "/models/none.gguf", keep_alive);
    auto service = Service::create({.parallel = 2, .queue_max = 32}, *pool_);
    ASSERT_TRUE(service) << service.error().message;
    service_ = *std::move(service);
  }
  std::shared_ptr<FakeExchange> ask(const std::string& model, Json more = Json::object()) {
    Json body = {{"model", model}, {"temperature", 0}, {"messages", {{{"role", "user"}, {"content", "A fern?"}}}}};
    body.update(more);
    auto exchange = std::make_shared<FakeExchange>("/v1/chat/completions", body);
    service_->take(openai_chat(), exchange, {});
    return exchange;
  }
  std::shared_ptr<FakeExchange> ollama(Json body) {
    auto exchange = std::make_shared<FakeExchange>("/api/generate", body);
    service_->take(ollama_generate(), exchange, {});
    return exchange;
  }
  Json answer(const std::string& model, Json more = Json::object()) {
    const auto exchange = ask(model, std::move(more));
    EXPECT_TRUE(comes([&] { return exchange->ended(); }));
    EXPECT_EQ(exchange->response().status, 200) << exchange->response().body;
    return Json::parse(exchange->response().body);
  }
  std::string text(const std::string& model, Json more = Json::object()) {
    return answer(model, std::move(more))["choices"][0]["message"]["content"];
  }
  ModelStatus status(size_t i) { return pool_->status().at(i); }

  std::filesystem::path cache_;
  std::atomic<int> opens_{0};
  std::atomic<bool> blocked_{false};
  std::unique_ptr<ModelPool> pool_;
  std::unique_ptr<Service> service_;
};

TEST_F(ServiceModelsTest, TakeTurnsAndAnswerAsAlone) {
  open(15);
  const std::map<std::string, std::string> alone = {{"small", text("small")}, {"large-too", text("large")}};
  EXPECT_NE(alone.at("small"), alone.at("large-too"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4; ++i) {
        const char* model = (t + i) % 2 == 0 ? "small" : "large-too";
        EXPECT_EQ(text(model), alone.at(model));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(status(0).evictions + status(1).evictions, 3u);
  EXPECT_TRUE(comes([&] { return status(0).leases + status(1).leases == 0; }));
  EXPECT_EQ(pool_->bytes(), 10u);
}

TEST_F(ServiceModelsTest, AModelThatRunsIsNotGivenUp) {
  open(15);
  const auto runs = ask("small", {{"stream", true}, {"max_tokens", 1900}, {"ignore_eos", true}});
  ASSERT_TRUE(comes([&] { return runs->response().body.size() > 100; }));
  const auto waits = ask("large", {{"stream", true}}), whole = ask("large");
  ASSERT_TRUE(comes([&] { return service_->counts().waiting == 2; }));
  EXPECT_TRUE(comes([&] { return waits->begun(); })) << "held by comments";
  EXPECT_EQ(status(0).evictions, 0u);
  // What comes for the one that runs waits behind them by now.
  const auto again = ask("small");
  ASSERT_TRUE(comes([&] { return service_->counts().waiting == 3; }));
  EXPECT_FALSE(waits->ended());
  runs->leave();
  ASSERT_TRUE(comes([&] { return waits->ended() && whole->ended() && again->ended(); }));
  EXPECT_TRUE(waits->response().body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(whole->response().status, 200);
  EXPECT_EQ(again->response().status, 200);
}

TEST_F(ServiceModelsTest, WhatIsTooLargeSaysSo) {
  open(9);
  const auto refused = ask("small"), streams = ask("small", {{"stream", true}});
  ASSERT_TRUE(comes([&] { return refused->ended() && streams->ended(); }));
  for (const auto& exchange : {refused, streams}) {
    const auto response = exchange->response();
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.headers.back().first, "retry-after");
    EXPECT_NE(response.body.find("the server's budget is 9"), std::string::npos) << response.body;
  }
  EXPECT_EQ(opens_, 0);
  EXPECT_EQ(service_->counts().waiting, 0u);
}

TEST_F(ServiceModelsTest, WhatCannotBeLoadedNamesNoFolder) {
  open(100);
  for (int i = 0; i < 3; ++i) {
    const auto failed = ask("broken");
    ASSERT_TRUE(comes([&] { return failed->ended(); }));
    const auto response = failed->response();
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.headers.back(), (std::pair<std::string, std::string>("retry-after", "3")));
    EXPECT_NE(response.body.find("the model could not be loaded"), std::string::npos) << response.body;
    EXPECT_NE(response.body.find("none.gguf"), std::string::npos) << response.body;
    EXPECT_EQ(response.body.find(BATON_SOURCE_DIR), std::string::npos) << response.body;
  }
  EXPECT_EQ(opens_, 1) << "not tried again at once";
  EXPECT_FALSE(text("small").empty());
}

TEST_F(ServiceModelsTest, WhoLeavesDuringALoadIsForgotten) {
  open(100);
  blocked_ = true;
  const auto leaves = ask("small", {{"stream", true}}), stays = ask("small");
  ASSERT_TRUE(comes([&] { return service_->counts().waiting == 2 && opens_ == 1; }));
  EXPECT_TRUE(comes([&] { return leaves->begun(); }));
  leaves->leave();
  EXPECT_TRUE(comes([&] { return service_->counts().waiting == 1; }));
  blocked_ = false;
  ASSERT_TRUE(comes([&] { return stays->ended(); }));
  EXPECT_EQ(stays->response().status, 200);
  EXPECT_FALSE(leaves->ended());
  EXPECT_TRUE(comes([&] { return status(0).leases == 0; }));
}

TEST_F(ServiceModelsTest, ADrainDuringALoadWaitsForNobody) {
  open(100);
  blocked_ = true;
  const auto whole = ask("small"), streams = ask("small", {{"stream", true}});
  ASSERT_TRUE(comes([&] { return streams->begun() && opens_ == 1; }));
  service_->stop();
  EXPECT_TRUE(service_->drain(std::chrono::seconds(5)));
  EXPECT_EQ(whole->response().status, 503);
  EXPECT_NE(streams->response().body.find("shutting down"), std::string::npos) << streams->response().body;
  blocked_ = false;
  service_.reset();
  pool_->close(false);
  EXPECT_EQ(pool_->bytes(), 0u);
}

TEST_F(ServiceModelsTest, ClientsSayHowLongItStays) {
  open(100);
  const auto told = [&](Json more) {
    Json body = {{"model", "small"}, {"prompt", "fern:"}, {"stream", false}};
    body.update(more);
    const auto exchange = ollama(body);
    EXPECT_TRUE(comes([&] { return exchange->ended(); }));
    return Json::parse(exchange->response().body);
  };
  EXPECT_EQ(told({{"prompt", ""}})["done_reason"], "load");
  EXPECT_TRUE(status(0).loaded);
  EXPECT_FALSE(status(0).unloads_in) << "as it is configured";
  told({{"keep_alive", "10m"}});
  EXPECT_TRUE(comes([&] { return status(0).leases == 0; }));
  EXPECT_GT(*status(0).unloads_in, std::chrono::minutes(9));
  told({{"keep_alive", -1}});
  EXPECT_FALSE(status(0).unloads_in);
  EXPECT_FALSE(told({{"keep_alive", 0}})["response"].get<std::string>().empty());
  EXPECT_TRUE(comes([&] { return !status(0).loaded; })) << "behind the answer";
  told(Json::object());
  EXPECT_TRUE(status(0).loaded);
  EXPECT_EQ(told({{"prompt", ""}, {"keep_alive", 0}})["done_reason"], "unload");
  EXPECT_TRUE(comes([&] { return !status(0).loaded; }));
  EXPECT_EQ(told({{"prompt", ""}, {"keep_alive", 0}})["done_reason"], "unload") << "nor is it loaded for it";
  EXPECT_EQ(status(0).loads, 2u);
}

TEST_F(ServiceModelsTest, StatesOutliveTheirModel) {
  auto folder = TemporaryFolder::create("models");
  ASSERT_TRUE(folder);
  cache_ = folder->path();
  open(15);
  const std::string long_text(600, 'a');
  const Json more = {{"messages", {{{"role", "user"}, {"content", long_text}}}}};
  const auto first = answer("small", more);
  EXPECT_FALSE(text("large").empty());
  EXPECT_TRUE(comes([&] { return !status(0).loaded; }));
  const auto second = answer("small", more);
  EXPECT_EQ(second["choices"][0]["message"], first["choices"][0]["message"]);
  EXPECT_GT(second["usage"]["prompt_tokens_details"]["cached_tokens"].get<uint64_t>(), 0u) << second.dump();
}

TEST_F(ServiceModelsTest, OneModelsRequestsDoNotHoldUpAnothers) {
  open(100);
  std::vector<std::shared_ptr<FakeExchange>> runs;
  for (int i = 0; i < 4; ++i) {
    runs.push_back(ask("small", {{"stream", true}, {"max_tokens", 1900}, {"ignore_eos", true}}));
  }
  ASSERT_TRUE(comes([&] { return service_->counts().running == 2 && service_->counts().waiting == 2; }));
  EXPECT_FALSE(text("large").empty());
  EXPECT_FALSE(runs[0]->ended());
  for (const auto& exchange : runs) exchange->leave();
}

}  // namespace
}  // namespace baton::serve
