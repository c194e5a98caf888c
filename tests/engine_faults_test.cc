// What a request loses when a unit fails: what came behind its last checkpoint, and nothing of others'.
#include <gtest/gtest.h>

#include "tests/support/engine_rig.h"

namespace baton::fake {
namespace {

Status device_failure() { return fail(Code::kDevice, "the fake device failed"); }

// Fails the acts of a kind that `which` names, counted from 1.
Behaviour failing(Act act, std::function<bool(int)> which) {
  Behaviour behaviour;
  behaviour.before = [=, calls = 0](Act now, size_t) mutable -> Status {
    return now == act && which(++calls) ? device_failure() : Status();
  };
  return behaviour;
}

EngineLimits with_checkpoints() {
  EngineLimits limits;
  limits.checkpoint_bytes_max = uint64_t{1} << 20;
  limits.checkpoint_tokens = 64;
  return limits;
}

Request single(size_t prompt, uint32_t answer, ReuseMode reuse) {
  Request request = make_request(prompt, answer);
  request.prefill_unit = request.decode_unit = "a";
  request.strategy = "single";
  request.reuse = reuse;
  return request;
}

TEST(LastCheckpoint, IsWhereADecodeBeginsAgain) {
  Rig rig(with_checkpoints(), {failing(Act::kDecode, [](int call) { return call == 10; })});
  const Request request = single(200, 20, ReuseMode::kExact);
  const Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.finished.reason, FinishReason::kLength) << answer.finished.error.message;
  EXPECT_EQ(answer.tokens, expected_of(request));
  EXPECT_EQ(answer.finished.stats.restarts, 1u);
  EXPECT_EQ(answer.finished.stats.restarted_at, 192u);
  EXPECT_EQ(answer.finished.stats.fallback, "decode on 'a': the fake device failed");
  EXPECT_EQ(answer.finished.stats.cached_tokens, 0u) << "nobody else made it";
  // 9 tokens were drawn before; all but the last are gone through again behind the checkpoint.
  EXPECT_EQ(rig.units[0]->prefilled_tokens(), 199u + (200 + 9 - 1 - 192));
  EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
}

// What is kept for others goes first where a unit finds no memory; the request begins once again.
TEST(NoMemory, TakesCheckpointsBeforeAnswers) {
  std::atomic<int> left{0};
  Behaviour behaviour;
  behaviour.before = [&](Act act, size_t) -> Status {
    if (act != Act::kNewState || left == 0) return {};
    --left;
    return fail(Code::kOutOfMemory, "no memory for a state");
  };
  Rig rig(with_checkpoints(), {behaviour});
  run(*rig.engine, single(200, 5, ReuseMode::kExact));
  const uint64_t kept = rig.engine->usage().checkpoint_bytes;
  EXPECT_GT(kept, 0u);
  left = 1;
  Request request = single(100, 5, ReuseMode::kOff);
  const Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.tokens, expected_of(request)) << answer.finished.error.message;
  EXPECT_EQ(answer.finished.stats.restarts, 1u);
  EXPECT_NE(answer.finished.stats.fallback.find("no memory for a state"), std::string::npos);
  EXPECT_TRUE(comes_true([&] { return rig.engine->usage().checkpoint_bytes == 0; }));
  // Of what comes then half as much is kept; and twice without memory is an error.
  run(*rig.engine, single(200, 5, ReuseMode::kExact));
  EXPECT_LE(rig.engine->usage().checkpoint_bytes, kept / 2);
  left = 2;
  EXPECT_EQ(run(*rig.engine, request).finished.error.code, Code::kOutOfMemory);
  EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
}

// What finds no memory begins once again, and ends when it finds none then.
TEST(NoMemory, AUnitThatThrowsDoesNotTakeTheEngineDown) {
  for (const bool twice : {false, true}) {
    Rig rig({}, {{.before = [](Act, size_t) -> Status { throw std::runtime_error("foreign"); }},
                 {.before = [twice, calls = 0](Act act, size_t) mutable -> Status {
                   if (act != Act::kDecode) return {};
                   if (++calls == 3 || (twice && calls == 5)) throw std::bad_alloc();
                   return {};
                 }}});
    const Answer answer = run(*rig.engine, make_request(9, 20));
    EXPECT_EQ(answer.finished.reason, twice ? FinishReason::kError : FinishReason::kLength);
    EXPECT_NE(answer.finished.stats.fallback.find("foreign"), std::string::npos);
    if (twice) {
      EXPECT_EQ(answer.finished.error.code, Code::kOutOfMemory);
    } else {
      EXPECT_NE(answer.finished.stats.fallback.find("no memory"), std::string::npos);
      EXPECT_EQ(answer.tokens, expected_of(make_request(9, 20)));
    }
    EXPECT_EQ(run(*rig.engine, make_request(9, 20)).tokens, expected_of(make_request(9, 20)));
  }
}

TEST(LastCheckpoint, IsWhereAPrefillBeginsAgain) {
  // Steps of 8 tokens: the 20th is behind the checkpoint of 128 tokens.
  Behaviour behaviour = failing(Act::kPrefill, [](int call) { return call == 20; });
  behaviour.prefill_tokens_preferred = 8;
  EngineLimits limits = with_checkpoints();
  limits.prefill_factor_max = 1;
  Rig rig(limits, {behaviour});
  const Request request = single(200, 5, ReuseMode::kExact);
  const Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.tokens, expected_of(request)) << answer.finished.error.message;
  EXPECT_EQ(answer.finished.stats.restarts, 1u);
  EXPECT_EQ(answer.finished.stats.restarted_at, 128u);
}

TEST(LastCheckpoint, OfAFailedPrefillUnitIsTakenUpByTheDecodeUnit) {
  Behaviour behaviour = failing(Act::kPrefill, [](int call) { return call == 20; });
  behaviour.prefill_tokens_preferred = 8;
  behaviour.storage = {DType::kF16, true};
  EngineLimits limits = with_checkpoints();
  limits.prefill_factor_max = 1;
  Rig rig(limits, {behaviour, {}});
  Request request = make_request(200, 5);
  request.reuse = ReuseMode::kExact;
  const Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.tokens, expected_of(request)) << answer.finished.error.message;
  EXPECT_EQ(answer.finished.stats.restarted_at, 128u);
  EXPECT_EQ(rig.units[1]->prefilled_tokens(), 199u - 128);
}

TEST(LastCheckpoint, IsThatOfAnEarlierRequestToo) {
  Rig rig(with_checkpoints(), {failing(Act::kDecode, [](int call) { return call == 12; })});
  Request request = single(200, 5, ReuseMode::kAny);
  run(*rig.engine, request);
  request.tokens.resize(195);
  request.max_new_tokens = 20;
  const Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.tokens, expected_of(request)) << answer.finished.error.message;
  EXPECT_EQ(answer.finished.stats.restarted_at, 192u);
  EXPECT_EQ(answer.finished.stats.cached_tokens, 192u);
}

TEST(LastCheckpoint, IsGoneBackToOnce) {
  Rig rig(with_checkpoints(), {failing(Act::kDecode, [](int call) { return call == 10 || call == 12; })});
  const Answer answer = run(*rig.engine, single(200, 20, ReuseMode::kExact));
  EXPECT_EQ(answer.finished.reason, FinishReason::kError);
  EXPECT_EQ(answer.finished.error.message, "decode on 'a': the fake device failed");
  EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
}

TEST(LastCheckpoint, WithoutOneAFailedDecodeIsAnError) {
  Rig rig(with_checkpoints(), {failing(Act::kDecode, [](int call) { return call == 10; })});
  const Answer answer = run(*rig.engine, single(200, 20, ReuseMode::kOff));
  EXPECT_EQ(answer.finished.reason, FinishReason::kError);
  EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
}

// Moved by the test: a slow machine is no reason to give a step up.
class HandClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  void advance_ms(int64_t ms) { now_ns_ += ms * 1'000'000; }

 private:
  std::atomic<int64_t> now_ns_{1};
};

constexpr int64_t kTimeoutMs = 5000;

// Units "a" and "b"; one of them hangs in its first act of a kind, until the gate is opened.
struct HangRig {
  HangRig(size_t which, Act act, uint64_t state_bytes_max = 0) {
    const auto model = make_model(kContext);
    for (size_t i = 0; i < 2; ++i) {
      Behaviour behaviour;
      behaviour.before = [this, hangs = i == which, act](Act now, size_t) -> Status {
        if (hangs && now == act) gate.pass();
        return {};
      };
      units.push_back(std::make_unique<FakeExecutor>(std::string(1, static_cast<char>('a' + i)), model, behaviour));
    }
    EngineOptions options;
    for (const auto& unit : units) options.units.push_back({unit->name(), &unit->caps(), unit.get()});
    options.clock = &clock;
    options.limits.step_timeout_ms = kTimeoutMs;
    options.limits.state_bytes_max = state_bytes_max;
    auto made = Engine::create(std::move(options));
    BATON_CHECK(made);
    engine = *std::move(made);
  }
  ~HangRig() {
    gate.open();
    engine.reset();
    // The thread that was left alone gives its states up last.
    EXPECT_TRUE(comes_true([&] { return live_states() == 0; }));
  }
  int64_t live_states() const { return units[0]->live_states() + units[1]->live_states(); }
  static Request on(const char* unit, uint64_t seed) {
    Request request = make_request(20, 5, seed);
    request.prefill_unit = request.decode_unit = unit;
    request.strategy = "single";
    return request;
  }

  HandClock clock;
  Gate gate;
  std::vector<std::unique_ptr<FakeExecutor>> units;
  std::unique_ptr<Engine> engine;
};

TEST(Hang, EndsTheRequestsOfItsUnitAndNoOthers) {
  HangRig rig(1, Act::kDecode);
  auto hung = rig.engine->submit(HangRig::on("b", 1)), waiting = rig.engine->submit(HangRig::on("b", 2));
  ASSERT_TRUE(hung && waiting);
  rig.gate.wait_for_arrival();
  rig.clock.advance_ms(kTimeoutMs - 1);
  const Request other = HangRig::on("a", 3);
  EXPECT_EQ(run(*rig.engine, other).tokens, expected_of(other)) << "while the other unit hangs";
  EXPECT_FALSE(hung->next_event(milliseconds(0))) << "a millisecond is left";
  rig.clock.advance_ms(1);
  for (Ticket* ticket : {&*hung, &*waiting}) {
    const Answer answer = read_answer(*ticket);
    EXPECT_EQ(answer.finished.reason, FinishReason::kError);
    EXPECT_EQ(answer.finished.error.code, Code::kUnavailable);
    EXPECT_NE(answer.finished.error.message.find("'b'"), std::string::npos) << answer.finished.error.message;
    EXPECT_NE(answer.finished.error.message.find("did not return within 5000 ms"), std::string::npos)
        << answer.finished.error.message;
  }
  EXPECT_EQ(rig.engine->submit(HangRig::on("b", 4)).error().code, Code::kUnavailable);
  EXPECT_EQ(run(*rig.engine, other).tokens, expected_of(other)) << "after it was given up";
  EXPECT_EQ(rig.engine->usage().requests, 0u);
  EXPECT_EQ(rig.engine->usage().states, 1u) << "the one that the step has";
  EXPECT_EQ(rig.engine->close(), std::vector<std::string>{"b"});
}

TEST(Hang, ThatEndsGivesItsMemoryBack) {
  HangRig rig(1, Act::kDecode);
  auto hung = rig.engine->submit(HangRig::on("b", 1));
  rig.gate.wait_for_arrival();
  rig.clock.advance_ms(kTimeoutMs);
  EXPECT_EQ(read_answer(*hung).finished.error.code, Code::kUnavailable);
  rig.gate.open();
  EXPECT_TRUE(comes_true([&] { return rig.engine->usage().states == 0; }));
  EXPECT_EQ(rig.engine->usage().state_bytes, 0u);
  EXPECT_EQ(rig.engine->submit(HangRig::on("b", 4)).error().code, Code::kUnavailable) << "it stays lost";
  EXPECT_EQ(rig.engine->close(), std::vector<std::string>{});
}

TEST(Hang, OfThePrefillUnitFallsBackToTheDecodeUnit) {
  HangRig rig(0, Act::kPrefill);
  const Request request = make_request(20, 5);
  auto ticket = rig.engine->submit(request);
  rig.gate.wait_for_arrival();
  // The decode unit has made its state: nothing else is away when the time is up.
  ASSERT_TRUE(comes_true([&] { return rig.engine->usage().state_bytes > 0; }));
  rig.clock.advance_ms(kTimeoutMs);
  const Answer answer = read_answer(*ticket);
  EXPECT_EQ(answer.tokens, expected_of(request)) << answer.finished.error.message;
  EXPECT_NE(answer.finished.stats.fallback.find("did not return within"), std::string::npos);
}

// The end does not wait for the step, but its memory does; and the engine's end still gives the unit up.
TEST(Hang, ACancelledRequestEndsAtOnce) {
  HangRig rig(1, Act::kDecode);
  auto hung = rig.engine->submit(HangRig::on("b", 1));
  rig.gate.wait_for_arrival();
  hung->cancel();
  EXPECT_EQ(read_answer(*hung).finished.reason, FinishReason::kCancelled);
  EXPECT_EQ(rig.engine->usage().requests, 0u);
  EXPECT_EQ(rig.engine->usage().states, 1u) << "the one that the step has";
  rig.engine->shutdown();
  rig.clock.advance_ms(kTimeoutMs);
  EXPECT_EQ(rig.engine->close(), std::vector<std::string>{"b"});
}

TEST(Hang, RequestsThatItsMemoryKeepsOutAreRefused) {
  HangRig rig(1, Act::kDecode, make_request(20, 5).tokens.size() * 8 * 8);
  auto hung = rig.engine->submit(HangRig::on("b", 1));
  ASSERT_TRUE(hung) << hung.error().message;
  rig.gate.wait_for_arrival();
  auto waits = rig.engine->submit(HangRig::on("a", 2));
  ASSERT_TRUE(waits);
  rig.clock.advance_ms(kTimeoutMs);
  EXPECT_EQ(read_answer(*hung).finished.error.code, Code::kUnavailable);
  const Answer refused = read_answer(*waits);
  EXPECT_EQ(refused.finished.error.code, Code::kOutOfMemory);
  EXPECT_NE(refused.finished.error.message.find("holds the memory"), std::string::npos);
}

}  // namespace
}  // namespace baton::fake
