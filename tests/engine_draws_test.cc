// Constraints, logit bias and logprobs through the engine: they are right whatever fails, falls back or is proved, and
// those of a prompt are whole.
#include <gtest/gtest.h>

#include "tests/support/engine_rig.h"

namespace baton::fake {
namespace {

Behaviour failing(Act act, std::function<bool(int)> which) {
  Behaviour behaviour;
  behaviour.before = [=, calls = 0](Act now, size_t) mutable -> Status {
    return now == act && which(++calls) ? fail(Code::kDevice, "the fake device failed") : Status();
  };
  return behaviour;
}

EngineLimits with_checkpoints() {
  EngineLimits limits;
  limits.checkpoint_bytes_max = uint64_t{1} << 20;
  limits.checkpoint_tokens = 64;
  return limits;
}

Request constrained(size_t prompt, uint32_t answer, uint64_t seed = 1) {
  Request request = make_request(prompt, answer, seed);
  request.sampler = {.temperature = 0.9f, .seed = seed, .presence_penalty = 0.5f, .banned_ids = {}};
  request.sampler.constraint = std::make_shared<Constraint>(seed, kVocab);
  request.sampler.logit_bias = {{2, 3.0f}, {5, -100.0f}};
  request.sampler.logprobs = 3;
  return request;
}

Request single(Request request) {
  request.prefill_unit = request.decode_unit = "a";
  request.strategy = "single";
  return request;
}

void expect_right(const Answer& answer, const Request& request) {
  EXPECT_EQ(answer.finished.reason, FinishReason::kLength) << answer.finished.error.message;
  EXPECT_EQ(answer.tokens, expected_of(request));
  EXPECT_EQ(static_cast<const Constraint&>(*request.sampler.constraint).accepted, answer.tokens) << "each once";
  std::vector<int32_t> all = request.tokens;
  all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  EXPECT_EQ(answer.logprobs, expected_logprobs(all, request.tokens.size(), 3));
}

TEST(Draws, AreConstrainedBiasedAndTold) {
  Rig rig({}, {{}, {}});
  for (const char* strategy : {"handoff", "overlap"}) {
    Request request = constrained(20, 30);
    request.strategy = strategy;
    const Answer answer = run(*rig.engine, request);
    expect_right(answer, request);
    Request free = request;
    free.sampler.constraint.reset();
    EXPECT_NE(expected_of(free), answer.tokens) << "it changes the answer";
    free.sampler.logprobs.reset();
    EXPECT_TRUE(run(*rig.engine, free).logprobs.empty());
  }
}

// The constraint stands where the answer does, however often the state is made again.
TEST(Draws, GoOnWhereTheyWereWhenAStepFails) {
  for (const int at : {1, 2, 10}) {
    for (const ReuseMode reuse : {ReuseMode::kExact, ReuseMode::kAny}) {
      Rig rig(with_checkpoints(), {failing(Act::kDecode, [at](int call) { return call == at; })});
      Request request = single(constrained(200, 20));
      request.reuse = reuse;
      const Answer answer = run(*rig.engine, request);
      expect_right(answer, request);
      EXPECT_EQ(answer.finished.stats.restarts, 1u);
    }
  }
}

TEST(Draws, GoOnWhereTheyWereWhenLogitsAreNoNumbers) {
  Behaviour behaviour;
  behaviour.spoils_logits = [rows = 0]() mutable { return ++rows == 7; };
  Rig rig(with_checkpoints(), {behaviour});
  Request request = single(constrained(200, 20));
  request.reuse = ReuseMode::kExact;
  const Answer answer = run(*rig.engine, request);
  expect_right(answer, request);
  EXPECT_EQ(answer.finished.stats.restarts, 1u);
}

// Each of those that shared a failed step goes on by itself.
TEST(Draws, GoOnWhereTheyWereWhenASharedStepFails) {
  std::atomic<bool> failed{false};
  Behaviour behaviour;
  behaviour.decode_seats_max = 3;
  behaviour.before = [&](Act act, size_t seats) -> Status {
    if (act == Act::kDecode) std::this_thread::sleep_for(milliseconds(1));
    const bool fails = act == Act::kDecode && seats > 1 && !failed.exchange(true);
    return fails ? fail(Code::kDevice, "the fake device failed") : Status();
  };
  Rig rig({}, {behaviour});
  std::vector<Request> requests;
  std::vector<Ticket> tickets;
  for (uint64_t i = 0; i < 3; ++i) {
    requests.push_back(single(constrained(10 + i, 60, i + 1)));
    tickets.push_back(std::move(*rig.engine->submit(requests.back())));
  }
  for (size_t i = 0; i < 3; ++i) expect_right(read_answer(tickets[i]), requests[i]);
  EXPECT_TRUE(failed);
}

TEST(Draws, AreTheSameUnderAProof) {
  for (const bool spoilt : {false, true}) {
    for (const VerifyMode verify : {VerifyMode::kSample, VerifyMode::kAll}) {
      Behaviour source;
      if (spoilt) source.spoils_prefill = [] { return true; };
      Rig rig({}, {source, {}});
      Request request = constrained(20, 30);
      request.verify = verify;
      const Answer answer = run(*rig.engine, request);
      expect_right(answer, request);
      EXPECT_EQ(answer.finished.stats.bridge.proof_failed, spoilt);
    }
  }
}

TEST(Draws, ThatCannotBeEndTheRequestAndSayNothingWrong) {
  Rig rig({}, {{}, {}});
  Request request = constrained(9, 20);
  const auto constraint = std::make_shared<Constraint>(4, kVocab);
  constraint->refuses_at = 5;
  request.sampler.constraint = constraint;
  Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.finished.reason, FinishReason::kError);
  EXPECT_EQ(answer.finished.error.code, Code::kInternal);
  EXPECT_EQ(answer.tokens.size(), 5u);
  EXPECT_EQ(answer.tokens, constraint->accepted);
  constraint->reset();
  constraint->refuses_at = SIZE_MAX;
  constraint->allows_none = true;
  answer = run(*rig.engine, request);
  EXPECT_EQ(answer.finished.reason, FinishReason::kError);
  EXPECT_EQ(answer.finished.error.code, Code::kInvalidInput);
  EXPECT_NE(answer.finished.error.message.find("no token that may be drawn"), std::string::npos);
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
}

TEST(PromptLogprobs, AreOfEachTokenButTheFirst) {
  Rig rig(with_checkpoints(), {{.prefill_seats_shared = 4, .mixes = true}, {}, {.mixes = true}});
  for (const std::string strategy : {"single", "handoff", "overlap", "relay"}) {
    for (const size_t prompt : {size_t{1}, size_t{2}, size_t{200}}) {
      for (const uint32_t answer_max : {0u, 1u, 20u}) {
        Request request = make_request(prompt, answer_max);
        request.strategy = strategy;
        request.reuse = ReuseMode::kAny;
        if (strategy == "single") request.prefill_unit = "b";
        if (strategy == "relay") request.via_unit = "c", request.via_bounds = exact_bounds();
        for (const uint32_t top : {0u, 5u}) {
          request.prompt_logprobs = top;
          const Answer answer = run(*rig.engine, request);
          EXPECT_EQ(answer.finished.reason, FinishReason::kLength) << answer.finished.error.message;
          EXPECT_EQ(answer.tokens, expected_of(request));
          EXPECT_TRUE(answer.finished.prompt_logprobs == expected_logprobs(request.tokens, 1, top)) << strategy;
          EXPECT_EQ(answer.finished.stats.cached_tokens, 0u);
          EXPECT_EQ(answer.finished.stats.kept_checkpoints, 0u);
        }
      }
    }
  }
  EXPECT_TRUE(run(*rig.engine, make_request(20, 3)).finished.prompt_logprobs.empty());
}

TEST(PromptLogprobs, AreWholeWhenSomethingFails) {
  for (const Act act : {Act::kPrefill, Act::kDecode}) {
    for (const int at : {1, 2}) {
      for (const size_t unit : {size_t{0}, size_t{1}}) {
        std::vector<Behaviour> behaviours(2);
        behaviours[unit] = failing(act, [at](int call) { return call == at; });
        Rig rig(with_checkpoints(), behaviours);
        Request request = make_request(100, 5);
        request.prompt_logprobs = 2;
        const Answer answer = run(*rig.engine, request);
        const auto expected = answer.finished.reason == FinishReason::kError ? std::vector<Logprobs>()
                                                                             : expected_logprobs(request.tokens, 1, 2);
        EXPECT_TRUE(answer.finished.prompt_logprobs == expected);
        EXPECT_TRUE(act == Act::kDecode || answer.finished.reason == FinishReason::kLength);
      }
    }
  }
  // Rows that are no numbers are not told: the decode unit makes them again.
  Behaviour source;
  source.spoils_logits = [rows = 0]() mutable { return ++rows == 30; };
  Rig rig({}, {source, {}});
  Request request = make_request(100, 5);
  request.prompt_logprobs = 2;
  const Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.tokens, expected_of(request));
  EXPECT_TRUE(answer.finished.prompt_logprobs == expected_logprobs(request.tokens, 1, 2));
  EXPECT_NE(answer.finished.stats.fallback.find("the logit of token 0 is nan"), std::string::npos);
}

// So that their rows take no more memory than is meant for them.
TEST(PromptLogprobs, OfALargeVocabularyComeInShortSteps) {
  constexpr int32_t kWords = 300'000;
  std::atomic<size_t> longest{0};
  Behaviour behaviour{.prefill_tokens_preferred = 128};
  behaviour.before = [&](Act act, size_t tokens) -> Status {
    if (act == Act::kPrefill) longest = std::max(longest.load(), tokens);
    return {};
  };
  const auto model = make_model(kContext, 1, kWords);
  FakeExecutor unit("a", model, behaviour);
  EngineLimits limits;
  limits.step_ms = 1e6;
  auto engine = Engine::create({.units = {{"a", &unit.caps(), &unit}}, .limits = limits});
  ASSERT_TRUE(engine);
  Request request = single(make_request(300, 0));
  EXPECT_EQ(run(**engine, request).finished.reason, FinishReason::kLength);
  EXPECT_GT(longest, 64u);
  longest = 0;
  request.prompt_logprobs = 1;
  const Answer answer = run(**engine, request);
  EXPECT_LE(longest, 64u);
  ASSERT_EQ(answer.finished.prompt_logprobs.size(), 299u);
  for (const size_t i : {size_t{1}, size_t{65}, size_t{299}}) {
    const auto row = expected_logits(std::span(request.tokens).first(i), kStart, kWords);
    EXPECT_EQ(answer.finished.prompt_logprobs[i - 1], *logprobs_of(row, request.tokens[i], 1)) << i;
  }
}

// Beside others, who get the bits that they get alone.
TEST(PromptLogprobs, AreMadeBesideOthers) {
  Behaviour behaviour{.prefill_seats_shared = 4, .decode_seats_max = 4, .mixes = true};
  Rig rig({}, {behaviour});
  std::vector<Request> requests;
  std::vector<Ticket> tickets;
  for (uint64_t i = 0; i < 8; ++i) {
    Request request = i % 2 == 0 ? constrained(60 + i, 30, i + 1) : make_request(60 + i, 30, i + 1);
    if (i % 3 == 0) request.prompt_logprobs = static_cast<uint32_t>(i);
    requests.push_back(single(std::move(request)));
    tickets.push_back(std::move(*rig.engine->submit(requests.back())));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer answer = read_answer(tickets[i]);
    EXPECT_EQ(answer.tokens, expected_of(requests[i]));
    const auto& top = requests[i].prompt_logprobs;
    const auto expected = top ? expected_logprobs(requests[i].tokens, 1, *top) : std::vector<Logprobs>();
    EXPECT_TRUE(answer.finished.prompt_logprobs == expected) << i;
  }
}

TEST(PromptLogprobs, RefuseWhatCannotBeHadBesideThem) {
  Rig rig({}, {{}, {}});
  const auto refusal = [&](const std::function<void(Request&)>& change) {
    Request request = make_request(20, 5);
    request.prompt_logprobs = 1;
    change(request);
    auto ticket = rig.engine->submit(std::move(request));
    return ticket ? Error{} : ticket.error();
  };
  EXPECT_EQ(refusal([](Request& r) { r.prompt_logprobs = 21; }).message, "prompt_logprobs is 21: must be from 0 to 20");
  EXPECT_EQ(refusal([](Request& r) { r.verify = VerifyMode::kSample; }).code, Code::kUnsupported);
  EXPECT_EQ(refusal([](Request& r) { r.start_state = SealSource::owned(std::vector<std::byte>(64)); }).code,
            Code::kInvalidInput);
  EXPECT_EQ(refusal([](Request& r) { r.sampler.logprobs = 21; }).message, "logprobs is 21: must be from 0 to 20");
  EXPECT_EQ(refusal([](Request& r) { r.sampler.logit_bias = {{kVocab, 1.0f}}; }).code, Code::kInvalidInput);
}

}  // namespace
}  // namespace baton::fake
