// The strategy overlap on real units: logits have the bits that handoff gives, from checkpoints too. They read all of a
// state; its seal would also hold the steps it was made in, which the speed of the machine decides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "baton/api/units.h"
#include "baton/engine/engine.h"
#include "tests/support/golden.h"
#include "tests/support/test_names.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

class Overlap : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto model = load_model(data_folder() / "golden" / GetParam());
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
    EngineOptions options;
    options.limits.checkpoint_bytes_max = uint64_t{64} << 20;
    std::vector<std::string> names = {"cpu", "cpu:threads=1", "ref"};
    for (const UnitEntry* entry : unit_entries()) {
      const std::string name(entry->name);
      const bool known = std::find(names.begin(), names.end(), name) != names.end();
      if (const auto unit = create_test_unit(name); !known && unit && (*unit)->caps().tells_layers)
        others_.push_back(name);
    }
    names.insert(names.end(), others_.begin(), others_.end());
    for (const std::string& name : names) {
      auto unit = create_test_unit(name);
      ASSERT_TRUE(unit) << unit.error().message;
      auto executor = (*unit)->load(model_, 2);
      ASSERT_TRUE(executor) << executor.error().message;
      units_.push_back(std::move(*unit));
      executors_.push_back(std::move(*executor));
      options.units.push_back({name, &units_.back()->caps(), executors_.back().get()});
    }
    auto engine = Engine::create(std::move(options));
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  Request request(size_t tokens, const std::string& from, const std::string& to, std::string_view strategy) const {
    Request request;
    for (size_t i = 0; i < tokens; ++i)
      request.tokens.push_back(static_cast<int32_t>((3 + i * 7 + i / 50) % static_cast<size_t>(model_->program.vocab)));
    request.max_new_tokens = 4;
    request.ignore_eos = true;
    request.prefill_unit = from;
    request.decode_unit = to;
    request.strategy = strategy;
    request.want_logits = true;
    return request;
  }

  FinishedEvent ask(Request request) {
    auto ticket = engine_->submit(std::move(request));
    EXPECT_TRUE(ticket) << ticket.error().message;
    while (ticket) {
      auto event = ticket->next_event(std::chrono::minutes(5));
      if (!event) break;
      if (auto* finished = std::get_if<FinishedEvent>(&*event)) {
        EXPECT_EQ(finished->reason, FinishReason::kLength) << finished->error.message;
        EXPECT_EQ(finished->stats.fallback, "");
        return std::move(*finished);
      }
    }
    ADD_FAILURE() << "no end";
    return {};
  }

  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::string> others_;  // further units that tell of layers
};

TEST_P(Overlap, HasTheBitsOfHandoff) {
  using Units = std::pair<std::string, std::string>;
  std::vector<Units> units = {{"cpu", "ref"}, {"ref", "cpu"}, {"cpu", "cpu:threads=1"}, {"cpu", "cpu"}};
  for (const std::string& other : others_) {
    units.emplace_back(other, "cpu");
    units.emplace_back("cpu", other);
  }
  for (const auto& [from, to] : units) {
    for (const size_t tokens : {2, 65, 300}) {
      const FinishedEvent wanted = ask(request(tokens, from, to, "handoff"));
      const FinishedEvent got = ask(request(tokens, from, to, "overlap"));
      const std::string label = fmt::format("{} -> {}, {} tokens", from, to, tokens);
      EXPECT_EQ(got.logits, wanted.logits) << label;
      const BridgeStats &mine = got.stats.bridge, &other = wanted.stats.bridge;
      EXPECT_EQ(mine.kind, other.kind) << label;
      EXPECT_EQ(mine.bytes, other.bytes) << label;
      EXPECT_TRUE(mine.verified == other.verified) << label;
      EXPECT_TRUE(mine.hidden_ms >= 0 && mine.hidden_ms <= mine.ms) << label;
      EXPECT_EQ(other.hidden_ms, 0) << label;
    }
  }
  EXPECT_EQ(engine_->usage().states, 0u);
}

// What is restored of the source goes with the first step; what is kept of it is of the source's own unit.
TEST_P(Overlap, BeginsFromCheckpointsAndLeavesThem) {
  const auto reusing = [&](std::string_view strategy, uint64_t tenant) {
    Request asked = request(257, "cpu", "ref", strategy);
    asked.reuse = ReuseMode::kExact;
    asked.tenant = tenant;
    return asked;
  };
  const FinishedEvent wanted = ask(reusing("handoff", 1));
  EXPECT_EQ(ask(reusing("handoff", 1)).stats.cached_tokens, 256u);
  for (int round = 0; round < 2; ++round) {
    const FinishedEvent got = ask(reusing("overlap", 2));
    EXPECT_EQ(got.stats.cached_tokens, round == 0 ? 0u : 256u) << "which is all but the last token: kept, and found";
    EXPECT_EQ(got.logits, wanted.logits) << round;
    EXPECT_EQ(got.stats.bridge.bytes, wanted.stats.bridge.bytes) << round;
  }
  Request longer = reusing("overlap", 2);
  longer.tokens.resize(290, 5);
  Request same = longer;
  same.tenant = 1;
  same.strategy = "handoff";
  const FinishedEvent on = ask(std::move(longer));
  EXPECT_EQ(on.stats.cached_tokens, 256u);
  EXPECT_EQ(on.logits, ask(std::move(same)).logits);
}

INSTANTIATE_TEST_SUITE_P(Models, Overlap, testing::Values("tiny-qwen3.5", "tiny-llama"),
                         [](const auto& item) { return test_name(item.param); });

}  // namespace
}  // namespace baton::test
