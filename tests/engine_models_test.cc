// An engine with units of two models: what a request finds of one does not show that there is another.
#include <gtest/gtest.h>

#include "tests/support/engine_rig.h"

namespace baton::fake {
namespace {

// Two units of each of two models, with other answers, other ids and another context.
struct TwoModels {
  static constexpr int32_t kSmallVocab = 20, kSmallContext = 40;
  TwoModels() {
    const auto main = make_model(kContext), small = make_model(kSmallContext, 10, kSmallVocab);
    for (const char* name : {"a", "b"}) units.push_back(std::make_unique<FakeExecutor>(name, main, Behaviour{}));
    for (const char* name : {"c", "d"})
      units.push_back(std::make_unique<FakeExecutor>(name, small, Behaviour{.start = kOtherStart}));
    EngineOptions options;
    for (const auto& unit : units)
      options.units.push_back({unit->name(), &unit->caps(), unit.get(), &unit->model() == main.get() ? "" : "draft"});
    auto made = Engine::create(std::move(options));
    BATON_CHECK(made);
    engine = *std::move(made);
  }
  static Request ask(bool small, size_t prompt, uint32_t answer, uint64_t seed) {
    Request request = make_request(prompt, answer, seed);
    if (!small) return request;
    for (int32_t& token : request.tokens) token %= kSmallVocab;
    request.prefill_unit = "c";
    request.decode_unit = "d";
    return request;
  }
  static std::vector<int32_t> expected(bool small, const Request& request) {
    return small
               ? expected_answer(request.tokens, request.max_new_tokens, request.sampler, {}, kOtherStart, kSmallVocab)
                     .tokens
               : expected_of(request);
  }
  std::string refusal(const Request& request, Code code) {
    const auto ticket = engine->submit(request);
    EXPECT_FALSE(ticket);
    if (ticket) return {};
    EXPECT_EQ(ticket.error().code, code);
    return ticket.error().message;
  }

  std::vector<std::unique_ptr<FakeExecutor>> units;
  std::unique_ptr<Engine> engine;
};

TEST(TwoModels, AnswerAtTheSameTimeAsInEnginesOfTheirOwn) {
  TwoModels rig;
  std::vector<Request> requests;
  std::vector<Ticket> tickets;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Request request = TwoModels::ask(seed % 2 == 1, 3 + seed % 9, 20, seed);
    request.verify = static_cast<VerifyMode>(seed % 3);
    request.want_logits = true;
    if (seed % 4 > 1) request.sampler = {.temperature = 0.9f, .top_k = 6, .seed = seed, .banned_ids = {}};
    if (seed % 5 == 0) request.via_unit = seed % 2 == 1 ? "c" : "a", request.via_bounds = exact_bounds();
    requests.push_back(request);
    tickets.push_back(*rig.engine->submit(std::move(request)));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const bool small = i % 2 == 1;
    const Answer answer = read_answer(tickets[i]);
    EXPECT_EQ(answer.tokens, TwoModels::expected(small, requests[i])) << i;
    EXPECT_EQ(answer.finished.stats.fallback, "");
    EXPECT_EQ(answer.finished.logits, small ? expected_logits(requests[i].tokens, kOtherStart, TwoModels::kSmallVocab)
                                            : expected_logits(requests[i].tokens));
  }
}

TEST(TwoModels, ARequestIsOfOneAndWithinItsBounds) {
  TwoModels rig;
  Request mixed = TwoModels::ask(false, 5, 4, 1);
  mixed.prefill_unit = "c";
  EXPECT_EQ(rig.refusal(mixed, Code::kInvalidInput),
            "unit 'c' serves model 'draft', unit 'b' the main model: name units of one model");
  Request by_way = TwoModels::ask(true, 5, 4, 1);
  by_way.via_unit = "a";
  EXPECT_EQ(rig.refusal(by_way, Code::kInvalidInput),
            "unit 'a' serves the main model, unit 'd' model 'draft': name units of one model");
  Request alone = TwoModels::ask(true, 5, 4, 1);
  alone.prefill_unit.clear();
  EXPECT_EQ(run(*rig.engine, alone).tokens, TwoModels::expected(true, alone));
  // What the small one does not hold and does not know, the main one does.
  for (const bool small : {true, false}) {
    Request longer = TwoModels::ask(small, 41, 2, 1), other_id = TwoModels::ask(small, 5, 2, 1);
    other_id.tokens[2] = TwoModels::kSmallVocab;
    if (small) {
      EXPECT_NE(rig.refusal(longer, Code::kInvalidInput).find("41 tokens, the context holds 40"), std::string::npos);
      EXPECT_EQ(rig.refusal(other_id, Code::kInvalidInput), "token 2 is 20, the vocabulary has ids 0 to 19");
    } else {
      EXPECT_EQ(run(*rig.engine, longer).tokens, expected_of(longer));
      EXPECT_EQ(run(*rig.engine, other_id).tokens, expected_of(other_id));
    }
  }
}

TEST(TwoModels, ASavedStateIsOfTheModelThatMadeIt) {
  TwoModels rig;
  for (const bool small : {false, true}) {
    Request first = TwoModels::ask(true, 8, 3, 1);  // ids that both know
    if (!small) first.prefill_unit = "a", first.decode_unit = "b";
    first.want_sealed_state = true;
    const Answer saved = run(*rig.engine, first);
    ASSERT_FALSE(saved.finished.sealed_state.empty());
    Request next = first;
    next.tokens.push_back(7);
    next.start_state = SealSource::borrowed(saved.finished.sealed_state);
    const Answer answer = run(*rig.engine, next);
    EXPECT_EQ(answer.tokens, TwoModels::expected(small, next)) << answer.finished.error.message;
    next.prefill_unit = small ? "a" : "c";
    next.decode_unit = small ? "b" : "d";
    const Answer refused = run(*rig.engine, next);
    EXPECT_EQ(refused.finished.error.code, Code::kMismatch) << refused.finished.error.message;
    EXPECT_TRUE(refused.tokens.empty());
  }
}

}  // namespace
}  // namespace baton::fake
